#! claim: Without a row behind push the pushed register is taken for the return address.
#! source: DWARF 5 section 6.4.2.2
#! group: defect
#! right: dwarf
#! inject: missing-row at in_leaf
#@ before: leaf < mid < _start
#@ in_leaf: leaf < mid < _start
        .include "prelude.inc"
FUNC leaf
before:
        push    %r13
        .ifndef DEFECT
        .cfi_def_cfa_offset 16
        .cfi_offset r13, -16
        .endif
in_leaf:
        nop
        pop     %r13
        .cfi_def_cfa_offset 8
        .cfi_restore r13
        ret
ENDFUNC leaf

PLAIN_CALLER mid, leaf
PLAIN_ROOT mid

#= sample  dwarf sframe orc fp        guess
#= before  .     .      .   t@1/US512 x1@3/US502
#= in_leaf .     .      .   t@1/US512 x1@3/US502
