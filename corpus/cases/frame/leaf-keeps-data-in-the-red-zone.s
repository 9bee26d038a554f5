#! claim: A leaf may keep its locals below rsp; no rule of its frame depends on them.
#! source: psABI 3.2.2: the 128 bytes beyond rsp are reserved, the red zone
#! group: frame
#! view: copy
#! right: dwarf sframe orc
#! wrong: fp(US512)
#@ at_leaf: leaf < mid < _start
        .include "prelude.inc"

FUNC leaf
        movabs  $0x1111111111111111, %rax
        mov     %rax, -8(%rsp)
        mov     %rax, -128(%rsp)
        lea     leaf(%rip), %rax        # text addresses lie there, too
        mov     %rax, -16(%rsp)
at_leaf:
        mov     -8(%rsp), %rax
        ret
ENDFUNC leaf

FP_CALLER mid, leaf
FP_ROOT mid

#= sample  dwarf sframe orc fp         guess
#= at_leaf .     .      .   m1@1/US512 x1@3/US502
