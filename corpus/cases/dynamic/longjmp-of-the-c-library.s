#! claim: After libc's longjmp the chain is that of setjmp's caller.
#! source: glibc sysdeps/x86_64/setjmp.S and __longjmp.S (pointers are mangled in the buffer)
#! group: dynamic
#! link: -no-pie
#! right: dwarf
#@ deep: jumps < middle < main < [libc]+ < _start
#@ landed: leaf < main < [libc]+ < _start
        .include "prelude.inc"

FUNC jumps
        FP_ENTER
deep:
        lea     buffer(%rip), %rdi
        mov     $1, %esi
        call    longjmp@PLT
ENDFUNC jumps
        nop

FP_CALLER middle, jumps

FUNC leaf
        FP_ENTER
landed:
        FP_LEAVE
        ret
ENDFUNC leaf

        .globl  main
FUNC main
        FP_ENTER
        lea     buffer(%rip), %rdi
        call    _setjmp@PLT
        test    %eax, %eax
        jnz     1f
        call    middle
1:      call    leaf
        xor     %eax, %eax
        FP_LEAVE
        ret
ENDFUNC main

        .bss
        .balign 16
buffer: .skip   256

#= sample dwarf sframe orc fp guess
#= deep   .     *      *   *  *
#= landed .     *      *   *  *
