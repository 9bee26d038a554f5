#! claim: A function that never sets up rbp hides its caller from the frame-pointer walk.
#! source: gcc manual, -fomit-frame-pointer; psABI 3.2.1 (rbp is optional)
#! group: frame
#! right: dwarf sframe orc
#! wrong: fp(US512)
#! covers: US512
#@ at_leaf: leaf < mid < outer < _start
        .include "prelude.inc"

FUNC leaf                               # rbp is still mid's
        sub     $24, %rsp
        .cfi_def_cfa_offset 32
at_leaf:
        nop
        add     $24, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC leaf

FP_CALLER mid, leaf
FP_CALLER outer, mid
FP_ROOT outer

#= sample  dwarf sframe orc fp         guess
#= at_leaf .     .      .   m1@1/US512 x1@4/US502
