#! claim: A return address looked for one word too low is a local.
#! source: DWARF 5 section 6.4.1 (return address column)
#! group: defect
#! right: dwarf
#! inject: wrong-ra-slot at in_leaf
#@ in_leaf: leaf < mid < _start
        .include "prelude.inc"
FUNC leaf
        sub     $24, %rsp
        .cfi_def_cfa_offset 32
        .ifdef  DEFECT
        .cfi_offset rip, -16
        .endif
in_leaf:
        nop
        add     $24, %rsp
        .cfi_def_cfa_offset 8
        .ifdef  DEFECT
        .cfi_offset rip, -8
        .endif
        ret
ENDFUNC leaf

PLAIN_CALLER mid, leaf
PLAIN_ROOT mid

#= sample  dwarf sframe orc fp        guess
#= in_leaf .     .      .   t@1/US512 x1@3/US502
