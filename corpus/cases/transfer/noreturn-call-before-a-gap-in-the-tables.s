#! claim: Behind a last noreturn call there may be no row at all.
#! source: DWARF 5 section 6.4.4; gas .p2align padding between functions belongs to no FDE
#! group: transfer
#! right: dwarf fp
#! wrong: sframe:kernel-v3(US103)
#@ in_end: end_all < last_act < outer < _start
        .include "prelude.inc"

FUNC end_all
        FP_ENTER
in_end:
        EXIT0
ENDFUNC end_all

FUNC last_act
        FP_ENTER
        call    end_all
ENDFUNC last_act
        .p2align 6                      # padding without FDE
        .skip   64, 0xcc

FP_CALLER outer, last_act
FP_ROOT outer

#= sample dwarf sframe    orc fp guess      sframe:kernel-v3
#= in_end .     t@2/US103 .   .  x1@4/US502 t@2/US103
