#! claim: When an exit handler runs, main has returned and is gone.
#! source: ISO C 7.22.4.2 atexit; glibc stdlib/exit.c __run_exit_handlers
#! group: dynamic
#! link: -no-pie
#! right: dwarf
#@ in_handler: at_end < [libc]+ < ...
        .include "prelude.inc"

FUNC at_end
in_handler:
        nop
        ret
ENDFUNC at_end

        .globl  main
FUNC main
        sub     $8, %rsp
        .cfi_def_cfa_offset 16
        lea     at_end(%rip), %rdi
        xor     %esi, %esi
        lea     __dso_handle(%rip), %rdx
        call    __cxa_atexit@PLT
        xor     %eax, %eax
        add     $8, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC main

#= sample     dwarf sframe orc fp guess
#= in_handler .     *      *   *  *
