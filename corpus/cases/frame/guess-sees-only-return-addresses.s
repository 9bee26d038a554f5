#! claim: Scanning words is right when nothing but return addresses looks like text.
#! source: Linux arch/x86/kernel/unwind_guess.c
#! group: frame
#! view: copy:80
#! right: guess dwarf
#@ in_leaf: leaf < mid < outer < _start
        .include "prelude.inc"

FUNC leaf
in_leaf:
        ret
ENDFUNC leaf

PLAIN_CALLER mid, leaf                  # 8 + 32 + 32 bytes to the root's return address
PLAIN_CALLER outer, mid
PLAIN_ROOT outer

#= sample  dwarf sframe orc fp        guess
#= in_leaf .     .      .   t@1/US512 ~
