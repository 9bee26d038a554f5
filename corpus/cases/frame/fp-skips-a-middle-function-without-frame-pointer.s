#! claim: A middle function without frame pointer hides its own caller, not itself.
#! source: gcc manual, -fomit-frame-pointer; psABI 3.2.1
#! group: frame
#! right: dwarf sframe orc
#! wrong: fp(US512)
#@ at_leaf: leaf < bare < outer < top < _start
        .include "prelude.inc"

FUNC leaf
        FP_ENTER                        # saves outer's rbp: bare has none of its own
at_leaf:
        nop
        FP_LEAVE
        ret
ENDFUNC leaf

PLAIN_CALLER bare, leaf
FP_CALLER outer, bare
FP_CALLER top, outer
FP_ROOT top

#= sample  dwarf sframe orc fp         guess
#= at_leaf .     .      .   m1@2/US512 x1@5/US502
