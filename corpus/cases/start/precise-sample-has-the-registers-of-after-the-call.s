#! claim: A precise sample has a call's address and the registers after it: no row is to blame.
#! source: Linux 6.12 arch/x86/events/intel/ds.c, setup_pebs_fixed_sample_data
#! source: lkml.iu.edu/hypermail/linux/kernel/1511.2/03307.html
#! group: start
#! wrong: dwarf(US304) sframe(US304) orc(US304)
#! covers: US304
#! set: rip = thecall @leaf
#! set: rflags = rflags+8 @leaf
#@ leaf: leaf < mid < _start
        .include "prelude.inc"

FUNC leaf
        ret
ENDFUNC leaf

FUNC mid
        sub $24, %rsp
        .cfi_adjust_cfa_offset 24
thecall:
        call leaf
        add $24, %rsp
        .cfi_adjust_cfa_offset -24
        ret
ENDFUNC mid

        .globl _start
FUNC _start
        ROOT
        call mid
        EXIT0
ENDFUNC _start
#= sample dwarf     sframe    orc       fp        guess
#= leaf   w@0/US304 w@0/US304 w@0/US304 w@0/US304 w@0/US304
