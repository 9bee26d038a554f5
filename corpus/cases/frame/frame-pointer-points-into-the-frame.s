#! claim: A frame pointer that is biased into the frame is not a link of a chain.
#! source: gcc -m64 -mabi=ms and libffi unix64.S keep rbp at another place than the saved rbp
#! group: frame
#! right: dwarf sframe orc
#! wrong: fp(US512)
#@ in_leaf: leaf < biased < mid < _start
        .include "prelude.inc"

FUNC leaf
        FP_ENTER
in_leaf:
        nop
        FP_LEAVE
        ret
ENDFUNC leaf

FUNC biased
        push    %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset rbp, -16
        sub     $192, %rsp
        .cfi_def_cfa_offset 208
        lea     128(%rsp), %rbp
        .cfi_def_cfa rbp, 80
        call    leaf
        add     $192, %rsp
        .cfi_def_cfa rsp, 16
        pop     %rbp
        .cfi_def_cfa_offset 8
        .cfi_restore rbp
        ret
ENDFUNC biased

FP_CALLER mid, biased
FP_ROOT mid

#= sample  dwarf sframe orc fp        guess
#= in_leaf .     .      .   t@2/US512 x1@4/US502
