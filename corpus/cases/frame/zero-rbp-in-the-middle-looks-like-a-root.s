#! claim: A function that clears rbp ends the frame-pointer chain as a root would.
#! source: psABI 3.4.1: a zero rbp marks the deepest frame; gcc uses rbp as any register
#! group: frame
#! right: dwarf sframe orc
#! wrong: fp(US512)
#! covers: US512
#@ in_leaf: leaf < clears < outer < _start
        .include "prelude.inc"

FUNC leaf
        FP_ENTER
in_leaf:
        FP_LEAVE
        ret
ENDFUNC leaf

FUNC clears
        push    %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset rbp, -16
        xor     %ebp, %ebp
        call    leaf
        pop     %rbp
        .cfi_def_cfa_offset 8
        .cfi_restore rbp
        ret
ENDFUNC clears

FP_CALLER outer, clears
FP_ROOT outer

#= sample  dwarf sframe orc fp        guess
#= in_leaf .     .      .   t@2/US512 x1@4/US502
