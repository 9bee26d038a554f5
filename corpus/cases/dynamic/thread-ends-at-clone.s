#! claim: A thread's chain ends in the C library's clone, whose caller is undefined.
#! source: glibc sysdeps/unix/sysv/linux/x86_64/clone3.S (.cfi_undefined rip); nptl/pthread_create.c
#! group: dynamic
#! link: -no-pie
#! right: dwarf
#@ in_thread: works < thread < [lib]+
        .include "prelude.inc"

FUNC works
in_thread:
        nop
        ret
ENDFUNC works

FUNC thread
        sub     $8, %rsp
        .cfi_def_cfa_offset 16
        call    works
        xor     %eax, %eax
        add     $8, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC thread

        .globl  main
FUNC main
        FP_ENTER
        lea     handle(%rip), %rdi
        xor     %esi, %esi
        lea     thread(%rip), %rdx
        xor     %ecx, %ecx
        call    pthread_create@PLT
        mov     handle(%rip), %rdi
        xor     %esi, %esi
        call    pthread_join@PLT
        xor     %eax, %eax
        FP_LEAVE
        ret
ENDFUNC main

        .bss
        .balign 8
handle: .skip   8

#= sample    dwarf sframe orc fp guess
#= in_thread .     *      *   *  *
