#! claim: For an address in no image there is no table to ask.
#! source: perf "[unknown]" entries; a jump through a wild pointer
#! group: corrupt
#! set: rip = 0x123456000 @in_leaf
#! wrong: dwarf(US101)
#! covers: US101
#@ in_leaf: leaf < mid < _start
        .include "prelude.inc"

FUNC leaf
in_leaf:
        ret
ENDFUNC leaf

PLAIN_CALLER mid, leaf
PLAIN_ROOT mid

#= sample  dwarf     sframe    orc       fp        guess
#= in_leaf w@0/US101 w@0/US101 w@0/US101 w@0/US101 w@0/US402
