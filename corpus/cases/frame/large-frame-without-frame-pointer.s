#! claim: A frame of a megabyte is one offset in the tables.
#! source: DWARF 5 section 6.4.2.2 DW_CFA_def_cfa_offset takes an unsigned LEB128
#! group: frame
#! right: dwarf sframe
#! wrong: fp(US512)
#@ in_leaf: leaf < large < mid < _start
        .include "prelude.inc"

FUNC leaf
in_leaf:
        ret
ENDFUNC leaf

FUNC large
        sub     $0x100008, %rsp
        .cfi_def_cfa_offset 0x100010
        call    leaf
        add     $0x100008, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC large

PLAIN_CALLER mid, large
PLAIN_ROOT mid

#= sample  dwarf sframe orc       fp        guess
#= in_leaf .     .      t@2/US103 t@1/US512 x1@4/US502
