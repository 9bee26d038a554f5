#! claim: A return address that is not a code address ends the walk there, with its reason.
#! source: Linux unwind_get_return_address (__kernel_text_address); a stack overwritten by 0x41
#! group: corrupt
#! memory: rbp+8 = 0x4141414141414141 @in_leaf
#! wrong: dwarf(US206) fp(US206)
#! covers: US206
#@ in_leaf: leaf < mid < outer < _start
        .include "prelude.inc"

FUNC leaf
        FP_ENTER
in_leaf:
        FP_LEAVE
        ret
ENDFUNC leaf

FP_CALLER mid, leaf
FP_CALLER outer, mid
FP_ROOT outer

#= sample  dwarf     sframe    orc       fp        guess
#= in_leaf t@1/US206 t@1/US206 t@1/US206 t@1/US206 m1@1/US502
