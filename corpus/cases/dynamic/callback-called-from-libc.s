#! claim: A comparison function called by qsort has libc's frames between it and main.
#! source: ISO C 7.22.5.2; glibc stdlib/msort.c
#! group: dynamic
#! link: -no-pie
#! right: dwarf
#@ in_compare: compare < [libc]+ < ...
        .include "prelude.inc"

FUNC compare
        mov     (%rdi), %eax
in_compare:
        sub     (%rsi), %eax
        ret
ENDFUNC compare

        .globl  main
FUNC main
        FP_ENTER
        lea     numbers(%rip), %rdi
        mov     $8, %esi
        mov     $4, %edx
        lea     compare(%rip), %rcx
        call    qsort@PLT
        xor     %eax, %eax
        FP_LEAVE
        ret
ENDFUNC main

        .data
        .balign 4
numbers: .long  5, 3, 8, 1, 9, 2, 7, 4

#= sample     dwarf sframe orc fp guess
#= in_compare .     *      *   *  *
