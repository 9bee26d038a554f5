#! claim: A return address that points into data is not in text, though it is in the image.
#! source: psABI 3.3 (segments); Linux unwind_get_return_address
#! group: corrupt
#! memory: rbp+8 = variable @in_leaf
#! wrong: dwarf(US206) fp(US206)
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

        .data
        .balign 8
variable: .quad 1, 2, 3

#= sample  dwarf     sframe    orc       fp        guess
#= in_leaf t@1/US206 t@1/US206 t@1/US206 t@1/US206 m1@1/US502
