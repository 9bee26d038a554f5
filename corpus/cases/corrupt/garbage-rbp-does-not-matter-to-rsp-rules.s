#! claim: Rows on rsp do not read rbp; the frame-pointer walk reads nothing else.
#! source: psABI 3.2.1; gcc -O2 code
#! group: corrupt
#! set: rbp = 0x123456789abcdef1 @in_leaf
#! right: dwarf sframe orc
#! wrong: fp(US512)
#! covers: US201
#@ in_leaf: leaf < mid < outer < _start
        .include "prelude.inc"

FUNC leaf
in_leaf:
        ret
ENDFUNC leaf

PLAIN_CALLER mid, leaf
PLAIN_CALLER outer, mid
PLAIN_ROOT outer

#= sample  dwarf sframe orc fp        guess
#= in_leaf .     .      .   t@1/US512 x1@4/US502
