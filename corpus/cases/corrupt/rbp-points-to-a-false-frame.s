#! claim: A frame pointer into plausible data gives frames that never were.
#! source: Linux unwind_frame.c accepts any word pair on the stack as a frame
#! group: corrupt
#! set: rbp = rsp+16 @in_leaf
#! right: dwarf sframe orc
#! wrong: fp(US512)
#@ in_leaf: leaf < mid < outer < _start
        .include "prelude.inc"

FUNC leaf
        sub     $40, %rsp
        .cfi_def_cfa_offset 48
        movq    $0, 16(%rsp)            # a false frame: {0, a text address}
        lea     outer+1(%rip), %rax
        mov     %rax, 24(%rsp)
in_leaf:
        add     $40, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC leaf

PLAIN_CALLER mid, leaf
PLAIN_CALLER outer, mid
PLAIN_ROOT outer

#= sample  dwarf sframe orc fp        guess
#= in_leaf .     .      .   w@1/US512 x2@1/US502
