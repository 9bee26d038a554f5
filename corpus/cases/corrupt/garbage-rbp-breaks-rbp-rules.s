#! claim: A row on rbp is as good as rbp.
#! source: DWARF 5 section 6.4.1 (the CFA rule register + offset)
#! group: corrupt
#! set: rbp = 0x7000000001 @in_leaf
#! wrong: dwarf(US204) fp(US204)
#@ in_leaf: leaf < mid < _start
        .include "prelude.inc"

FUNC leaf
        FP_ENTER
in_leaf:
        FP_LEAVE
        ret
ENDFUNC leaf

FP_CALLER mid, leaf
FP_ROOT mid

#= sample  dwarf     sframe    orc       fp        guess
#= in_leaf t@1/US204 t@1/US204 t@1/US204 t@1/US204 x1@3/US502
