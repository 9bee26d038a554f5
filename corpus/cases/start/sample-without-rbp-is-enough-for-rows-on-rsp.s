#! claim: Of the registers only those matter that a row asks for.
#! source: man perf_event_open(2) sample_regs_user; perf-record(1) --user-regs
#! group: start
#! forget: rbp rbx r12 r13 r14 r15 @in_leaf
#! right: dwarf
#@ in_leaf: leaf < mid < outer < _start
        .include "prelude.inc"

FUNC leaf
in_leaf:
        nop
        ret
ENDFUNC leaf

PLAIN_CALLER mid, leaf
PLAIN_CALLER outer, mid
PLAIN_ROOT outer

#= sample  dwarf sframe orc fp        guess
#= in_leaf .     .      .   t@1/US301 x1@4/US502
