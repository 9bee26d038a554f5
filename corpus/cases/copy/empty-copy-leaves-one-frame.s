#! claim: With no stack at all the sampled address is all that is known.
#! source: man perf_event_open(2): dyn_size may be 0
#! group: copy
#! view: copy:0
#! wrong: dwarf(US202) fp(US202)
#@ in_leaf: leaf < one < _start
        .include "prelude.inc"

FUNC leaf
        FP_ENTER
in_leaf:
        FP_LEAVE
        ret
ENDFUNC leaf

FP_CALLER one, leaf
FP_ROOT one

#= sample  dwarf     sframe    orc       fp        guess
#= in_leaf t@1/US202 t@1/US202 t@1/US202 t@1/US202 t@1/US202
