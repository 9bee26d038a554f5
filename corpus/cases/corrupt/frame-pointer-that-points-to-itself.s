#! claim: A frame whose saved rbp is its own address never gets on.
#! source: glibc bug reports on __libc_backtrace cycles; Linux unwind_frame.c "frame <
#!    prev_frame_end"
#! group: corrupt
#! memory: rbp = rbp @in_leaf
#! wrong: fp(US204)
#! covers: US204
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
#= in_leaf t@2/US204 t@2/US204 t@2/US204 t@2/US204 x1@4/US502
