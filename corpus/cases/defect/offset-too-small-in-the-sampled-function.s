#! claim: A CFA offset 8 too small takes a local for the return address.
#! source: DWARF 5 section 6.4.2.2
#! group: defect
#! right: dwarf
#! inject: offset at in_leaf
#@ in_leaf: leaf < mid < outer < _start
        .include "prelude.inc"
FUNC leaf
        sub     $24, %rsp
        .ifdef  DEFECT
        .cfi_def_cfa_offset 24
        .else
        .cfi_def_cfa_offset 32
        .endif
in_leaf:
        nop
        add     $24, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC leaf

PLAIN_CALLER mid, leaf
PLAIN_CALLER outer, mid
PLAIN_ROOT outer

#= sample  dwarf sframe orc fp        guess
#= in_leaf .     .      .   t@1/US512 x1@4/US502
