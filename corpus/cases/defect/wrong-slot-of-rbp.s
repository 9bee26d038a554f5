#! claim: A wrong slot for rbp shows at the caller whose CFA depends on it.
#! source: DWARF 5 section 6.4.2.3 DW_CFA_offset
#! group: defect
#! right: dwarf
#! inject: wrong-slot at in_leaf
#@ in_leaf: leaf < by_rbp < outer < _start
        .include "prelude.inc"
FUNC leaf
        push    %rbp
        .cfi_def_cfa_offset 16
        push    %rbx
        .cfi_def_cfa_offset 24
        .cfi_offset rbx, -24
        .ifdef  DEFECT
        .cfi_offset rbp, -24
        .else
        .cfi_offset rbp, -16
        .endif
        mov     $17, %ebp
in_leaf:
        nop
        pop     %rbx
        .cfi_def_cfa_offset 16
        .cfi_restore rbx
        pop     %rbp
        .cfi_def_cfa_offset 8
        .cfi_restore rbp
        ret
ENDFUNC leaf

FP_CALLER by_rbp, leaf
PLAIN_CALLER outer, by_rbp
PLAIN_ROOT outer

#= sample  dwarf sframe orc fp        guess
#= in_leaf .     .      .   t@1/US512 x1@4/US502
