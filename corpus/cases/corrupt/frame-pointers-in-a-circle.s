#! claim: A saved rbp that leads back below is refused: the stack grows in one direction.
#! source: Linux arch/x86/kernel/unwind_frame.c update_stack_state
#! group: corrupt
#! memory: rbp+16 = rbp @in_leaf
#! wrong: fp(US204)
#@ in_leaf: leaf < mid < outer < _start
        .include "prelude.inc"

FUNC leaf
        FP_ENTER
in_leaf:                                # mid's saved rbp is at rbp+16, the next one at rbp+32
        FP_LEAVE
        ret
ENDFUNC leaf

FP_CALLER mid, leaf
FP_CALLER outer, mid
FP_ROOT outer

#= sample  dwarf     sframe    orc       fp        guess
#= in_leaf t@3/US204 t@3/US204 t@3/US204 t@3/US204 x1@4/US502
