#! claim: A frame pointer one byte off reads words that straddle the right ones.
#! source: psABI 3.2.2 (stack slots are eightbytes); Linux kernel ENCODE_FRAME_POINTER sets bit 0
#! group: corrupt
#! set: rbp = rbp+1 @in_leaf
#! wrong: fp(US206)
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
#= in_leaf t@1/US206 t@1/US206 t@1/US206 t@1/US206 x1@4/US502
