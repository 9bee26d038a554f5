#! claim: A CFA on rbp in a function that counts in rbp reads unmapped memory.
#! source: DWARF 5 section 6.4.2.2 DW_CFA_def_cfa_register
#! group: defect
#! right: dwarf
#! inject: register at in_leaf
#@ in_leaf: leaf < outer < _start
        .include "prelude.inc"
FUNC leaf
        push    %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset rbp, -16
        mov     $12345, %ebp
        .ifdef  DEFECT
        .cfi_def_cfa_register rbp
        .endif
in_leaf:
        nop
        pop     %rbp
        .cfi_def_cfa rsp, 8
        .cfi_restore rbp
        ret
ENDFUNC leaf

PLAIN_CALLER outer, leaf
PLAIN_ROOT outer

#= sample  dwarf sframe orc fp        guess
#= in_leaf .     .      .   t@1/US512 x1@3/US502
