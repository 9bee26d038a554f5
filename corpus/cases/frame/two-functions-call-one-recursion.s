#! claim: Behind forty equal frames stands the function that called them, one time and the other.
#! source: perf's --stitch-lbr, which takes equal branch records for the same calls (Linux 7.2,
#!    tools/perf/util/machine.c)
#! group: frame
#! right: dwarf sframe orc fp
#@ bottom: rec*40 < one < _start
#@ bottom #2: rec*40 < other < _start
        .include "prelude.inc"

FUNC rec
        FP_ENTER
        dec     %edi
        jz      bottom
        call    rec
        jmp     done
bottom:
        nop
done:
        FP_LEAVE
        ret
ENDFUNC rec

FP_CALLER one, rec
FP_CALLER other, rec

        .globl  _start
FUNC _start
        ROOT    rbp=0
        mov     $40, %edi
        call    one
        mov     $40, %edi
        call    other
        EXIT0
ENDFUNC _start

#= sample   dwarf sframe orc fp guess
#= bottom   .     .      .   .  x1@42/US502
#= bottom#2 .     .      .   .  x1@42/US502
