#! claim: A caller without a row for its sub is off by the whole frame.
#! source: DWARF 5 section 6.4.2.2
#! group: defect
#! right: dwarf
#! inject: missing-row at the_call
#@ in_leaf: leaf < mid < outer < _start
        .include "prelude.inc"
FUNC leaf
in_leaf:
        nop
        ret
ENDFUNC leaf

FUNC mid
        nop
        sub     $40, %rsp
        .ifndef DEFECT
        .cfi_def_cfa_offset 48
        .endif
the_call:
        call    leaf
        add     $40, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC mid

PLAIN_CALLER outer, mid
PLAIN_ROOT outer

#= sample  dwarf sframe orc fp        guess
#= in_leaf .     .      .   t@1/US512 x1@4/US502
