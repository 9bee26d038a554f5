#! claim: Rows on rsp are as good as rsp.
#! source: DWARF 5 section 6.4.1
#! group: corrupt
#! set: rsp = 0x1000 @in_leaf
#! wrong: dwarf(US201)
#@ in_leaf: leaf < mid < _start
        .include "prelude.inc"

FUNC leaf
in_leaf:
        ret
ENDFUNC leaf

PLAIN_CALLER mid, leaf
PLAIN_ROOT mid

#= sample  dwarf     sframe    orc       fp        guess
#= in_leaf t@1/US201 t@1/US201 t@1/US201 t@1/US512 t@1/US201
