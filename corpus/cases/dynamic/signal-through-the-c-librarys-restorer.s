#! claim: libc's trampoline has the mark S and a rule for every register.
#! source: glibc sysdeps/unix/sysv/linux/x86_64/libc_sigaction.c (__restore_rt)
#! group: dynamic
#! link: -no-pie
#! right: dwarf
#@ in_handler: handler < <signal> < [libc]+ < ...
        .include "prelude.inc"

FUNC handler
in_handler:
        nop
        ret
ENDFUNC handler

        .globl  main
FUNC main
        FP_ENTER
        mov     $10, %edi               # SIGUSR1
        lea     handler(%rip), %rsi
        call    signal@PLT
        mov     $10, %edi
        call    raise@PLT
        xor     %eax, %eax
        FP_LEAVE
        ret
ENDFUNC main

#= sample     dwarf sframe orc fp guess
#= in_handler .     *      *   *  *
