#! claim: A middle function that counts in rbp breaks the chain; the tables restore its caller's.
#! source: psABI 3.2.1; gcc -O2 output, where rbp is allocated like rbx
#! group: frame
#! right: dwarf sframe orc
#! wrong: fp(US512)
#@ at_leaf: leaf < counts < outer < _start
        .include "prelude.inc"

FUNC leaf
        FP_ENTER
at_leaf:
        nop
        FP_LEAVE
        ret
ENDFUNC leaf

FUNC counts
        push    %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset rbp, -16
        mov     $1000003, %ebp          # a counter, not an address
        call    leaf
        pop     %rbp
        .cfi_def_cfa_offset 8
        .cfi_restore rbp
        ret
ENDFUNC counts

FP_CALLER outer, counts
FP_ROOT outer

#= sample  dwarf sframe orc fp        guess
#= at_leaf .     .      .   t@2/US512 x1@4/US502
