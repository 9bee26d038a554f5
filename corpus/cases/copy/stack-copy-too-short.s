#! claim: A copy of 64 bytes holds two return addresses of frames of 32 bytes.
#! source: perf-record(1) --call-graph dwarf,SIZE; man perf_event_open(2) sample_stack_user
#! group: copy
#! view: copy:64
#! wrong: dwarf(US202) sframe(US202) orc(US202)
#! covers: US202
#@ in_leaf: leaf < one < two < three < four < _start
        .include "prelude.inc"

FUNC leaf
in_leaf:
        ret
ENDFUNC leaf

PLAIN_CALLER one, leaf
PLAIN_CALLER two, one
PLAIN_CALLER three, two
PLAIN_CALLER four, three
PLAIN_ROOT four

#= sample  dwarf     sframe    orc       fp        guess
#= in_leaf t@3/US202 t@3/US202 t@3/US202 t@1/US512 t@3/US402
