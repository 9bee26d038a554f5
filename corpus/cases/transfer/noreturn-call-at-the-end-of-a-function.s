#! claim: The return address of a last noreturn call lies in the next function, the call does not.
#! source: DWARF 5 section 6.4.4; gcc bug 27563 (why lookups use the return address minus one)
#! group: transfer
#! right: dwarf orc fp
#! wrong: sframe:kernel-v3(US505)
#! covers: US505
#@ in_end: end_all < last_act < outer < _start
        .include "prelude.inc"

FUNC end_all
        FP_ENTER
in_end:
        EXIT0
ENDFUNC end_all

FUNC last_act
        FP_ENTER
        call    end_all                 # never comes back: the next byte is not ours
ENDFUNC last_act
FUNC neighbour                          # at its first byte CFA = rsp+8
        nop
        ret
ENDFUNC neighbour

FP_CALLER outer, last_act
FP_ROOT outer

#= sample dwarf sframe    orc fp guess      sframe:kernel-v3
#= in_end .     t@2/US505 .   .  x1@4/US502 t@2/US505
