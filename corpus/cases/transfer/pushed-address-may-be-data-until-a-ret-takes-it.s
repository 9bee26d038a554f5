#! claim: Where a pushed address is not right behind the jump, it may be data until a ret takes
#!    it; then the same jump is known to call.
#! source: no instruction tells a return address from a pointer to code (AMD64 APM volume 3, RET)
#! group: transfer
#! right: dwarf
#! truth-unknown-max: 2
#@ in_leaf #2: leaf < outer < _start
        .include "prelude.inc"

FUNC leaf
in_leaf:
        nop
        ret
ENDFUNC leaf

FUNC outer
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
        mov     $2, %ebx
again:
        lea     back(%rip), %rax
        push    %rax
        .cfi_def_cfa_offset 24
        jmp     leaf
        .cfi_def_cfa_offset 16
        .fill   64, 1, 0x90
back:
        sub     $1, %ebx
        jne     again
        pop     %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore rbx
        ret
ENDFUNC outer

PLAIN_ROOT outer
#= sample    dwarf sframe orc fp        guess
#= in_leaf#2 .     .      .   t@1/US512 x1@3/US502
