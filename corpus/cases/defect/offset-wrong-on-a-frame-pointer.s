#! claim: A CFA of rbp+24 takes the word above the return address.
#! source: psABI 3.2.2; DWARF 5 section 6.4.2.2
#! group: defect
#! right: dwarf fp
#! inject: offset at in_leaf
#@ in_leaf: leaf < mid < outer < _start
        .include "prelude.inc"
FUNC leaf
        push    %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset rbp, -16
        mov     %rsp, %rbp
        .ifdef  DEFECT
        .cfi_def_cfa rbp, 24
        .else
        .cfi_def_cfa_register rbp
        .endif
in_leaf:
        nop
        pop     %rbp
        .cfi_def_cfa rsp, 8
        .cfi_restore rbp
        ret
ENDFUNC leaf

FP_CALLER mid, leaf
FP_CALLER outer, mid
FP_ROOT outer

#= sample  dwarf sframe orc fp guess
#= in_leaf .     .      .   .  x1@4/US502
