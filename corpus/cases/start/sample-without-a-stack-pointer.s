#! claim: No table can start from a sample without a stack pointer.
#! source: man perf_event_open(2) sample_regs_user: the mask says which registers are there
#! group: start
#! forget: rsp @in_leaf
#! wrong: dwarf(US301) orc(US301)
#! covers: US301
#@ in_leaf: leaf < mid < _start
        .include "prelude.inc"

FUNC leaf
in_leaf:
        nop
        ret
ENDFUNC leaf

PLAIN_CALLER mid, leaf
PLAIN_ROOT mid

#= sample  dwarf   sframe  orc     fp      guess
#= in_leaf u/US301 u/US301 u/US301 u/US301 u/US301
