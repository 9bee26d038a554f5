#! claim: Where rbp is set before rsp is aligned, rbp alone is enough.
#! source: clang and gcc -O0 output for over-aligned locals: and $-64, %rsp behind mov %rsp, %rbp
#! group: frame
#! right: dwarf sframe orc fp
#@ in_leaf: leaf < aligned < mid < _start
        .include "prelude.inc"

FUNC leaf
        FP_ENTER
in_leaf:
        nop
        FP_LEAVE
        ret
ENDFUNC leaf

FUNC aligned
        FP_ENTER
        and     $-64, %rsp
        sub     $64, %rsp
        call    leaf
        leave
        .cfi_def_cfa rsp, 8
        .cfi_restore rbp
        ret
ENDFUNC aligned

FP_CALLER mid, aligned
FP_ROOT mid

#= sample  dwarf sframe orc fp guess
#= in_leaf .     .      .   .  x1@4/US502
