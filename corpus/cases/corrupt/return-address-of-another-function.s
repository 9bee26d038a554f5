#! claim: A return address changed to another function's gives a plausible chain that is not true.
#! source: return-oriented programming; Intel SDM volume 1 chapter 17 (shadow stacks)
#! group: corrupt
#! memory: rbp+8 = decoy+1 @in_leaf
#! wrong: dwarf(US502) fp(US502)
#! covers: US502
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

FUNC decoy
        .cfi_def_cfa_offset 16          # the frame that mid has
        .cfi_offset rbp, -16
        .cfi_def_cfa rbp, 16
        nop
        nop
        ud2
ENDFUNC decoy

#= sample  dwarf     sframe    orc       fp        guess
#= in_leaf w@1/US502 w@1/US502 w@1/US502 w@1/US502 w@1/US502
