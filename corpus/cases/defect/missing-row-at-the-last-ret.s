#! claim: Without a row behind leave the CFA depends on the rbp of the caller.
#! source: gcc before 4.5 wrote no epilogue rows; DWARF 5 section 6.4.2.2
#! group: defect
#! right: dwarf
#! inject: missing-row at last
#@ in_leaf: leaf < mid < outer < _start
#@ last: leaf < mid < outer < _start
        .include "prelude.inc"
FUNC leaf
        FP_ENTER
in_leaf:
        nop
        leave
        .ifndef DEFECT
        .cfi_def_cfa rsp, 8
        .cfi_restore rbp
        .endif
last:
        nop
        ret
ENDFUNC leaf

FP_CALLER mid, leaf
FP_CALLER outer, mid
FP_ROOT outer

#= sample  dwarf sframe orc fp         guess
#= in_leaf .     .      .   .          x1@4/US502
#= last    .     .      .   m1@1/US512 x1@4/US502
