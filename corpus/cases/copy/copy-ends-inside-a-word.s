#! claim: A return address of which the copy has only four bytes cannot be read.
#! source: Linux kernel/events/core.c perf_output_sample_ustack (dyn_size in bytes)
#! group: copy
#! view: copy:36
#! wrong: dwarf(US202)
#@ in_leaf: leaf < one < two < _start
        .include "prelude.inc"

FUNC leaf
in_leaf:
        ret
ENDFUNC leaf

PLAIN_CALLER one, leaf                  # two's return address is at rsp+32
PLAIN_CALLER two, one
PLAIN_ROOT two

#= sample  dwarf     sframe    orc       fp        guess
#= in_leaf t@2/US202 t@2/US202 t@2/US202 t@1/US512 t@2/US402
