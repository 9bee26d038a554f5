#! claim: The enter and leave instructions build the same frame as push and mov.
#! source: Intel SDM volume 2, ENTER and LEAVE
#! group: frame
#! right: dwarf sframe orc fp(at inside)
#! wrong: fp(US510 at before, US511 at after)
#@ before: leaf < mid < outer < _start
#@ inside: leaf < mid < outer < _start
#@ after: leaf < mid < outer < _start
        .include "prelude.inc"

FUNC leaf
before:
        enter   $32, $0
        .cfi_def_cfa rbp, 16
        .cfi_offset rbp, -16
inside:
        nop
        leave
        .cfi_def_cfa rsp, 8
        .cfi_restore rbp
after:
        ret
ENDFUNC leaf

FP_CALLER mid, leaf
FP_CALLER outer, mid
FP_ROOT outer

#= sample dwarf sframe orc fp         guess
#= before .     .      .   m1@1/US510 x1@4/US502
#= inside .     .      .   .          x1@4/US502
#= after  .     .      .   m1@1/US511 x1@4/US502
