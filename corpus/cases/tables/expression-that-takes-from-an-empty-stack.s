#! claim: An expression that cannot be evaluated ends the walk, it does not give zero.
#! source: DWARF 5 section 2.5 (stack machine); DW_OP_plus with one operand
#! group: tables
#! right: fp
#! wrong: dwarf(US107)
#! covers: US107
#@ in_leaf: leaf < mid < _start
        .include "prelude.inc"

FUNC leaf
        FP_ENTER
        .cfi_escape 0x0f, 3, 0x76, 16, 0x22 # CFA = breg6+16, plus
in_leaf:
        FP_LEAVE
        ret
ENDFUNC leaf

FP_CALLER mid, leaf
FP_ROOT mid

#= sample  dwarf     sframe    orc       fp guess
#= in_leaf t@1/US107 t@1/US103 t@1/US103 .  x1@3/US502
