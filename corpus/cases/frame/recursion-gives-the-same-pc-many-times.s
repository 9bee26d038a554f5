#! claim: A repeated return address is not a cycle as long as rsp advances.
#! source: libunwind src/mi (stops a walk whose ip and cfa both stay the same)
#! group: frame
#! right: dwarf sframe orc fp
#@ bottom: rec*41 < _start
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
        mov     $41, %edi
        call    rec
        EXIT0
ENDFUNC _start

#= sample dwarf sframe orc fp guess
#= bottom .     .      .   .  x1@42/US502
