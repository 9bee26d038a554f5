#! claim: A chain longer than the limit on frames ends there, right as far as it goes.
#! source: Linux sysctl kernel.perf_event_max_stack; runaway recursion before a stack overflow
#! group: corrupt
#! wrong: dwarf(US401) fp(US401)
#! covers: US401
#@ bottom: rec*70000 < _start
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

        .globl  _start
FUNC _start
        ROOT    rbp=0
        mov     $70000, %edi
        call    rec
        EXIT0
ENDFUNC _start

#= sample dwarf         sframe        orc           fp            guess
#= bottom t@65536/US401 t@65536/US401 t@65536/US401 t@65536/US401 t@65536/US401
