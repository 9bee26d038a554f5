#! claim: Where rbp is a plain register in every function the frame-pointer walk ends at once.
#! source: psABI 3.2.1 figure 3.4: rbp is callee-saved, its use as frame pointer is optional
#! group: frame
#! right: dwarf sframe orc
#! wrong: fp(US512)
#@ at_leaf: leaf < mid < outer < _start
        .include "prelude.inc"

FUNC leaf
at_leaf:
        ret
ENDFUNC leaf

PLAIN_CALLER mid, leaf
PLAIN_CALLER outer, mid
PLAIN_ROOT outer

#= sample  dwarf sframe orc fp        guess
#= at_leaf .     .      .   t@1/US512 x1@4/US502
