#! claim: Without branch records the LBR unwinder has nothing but the sampled address.
#! source: Intel SDM volume 3 chapter 18 (last branch records); man perf_event_open(2)
#! group: frame
#! right: dwarf
#! wrong: lbr(US303)
#! covers: US303
#@ in_leaf: leaf < mid < _start
        .include "prelude.inc"

FUNC leaf
in_leaf:
        ret
ENDFUNC leaf

PLAIN_CALLER mid, leaf
PLAIN_ROOT mid

#= sample  dwarf sframe orc fp        guess      lbr
#= in_leaf .     .      .   t@1/US512 x1@3/US502 u/US303
