#! claim: With .cfi_restore behind the pop the same copy is enough.
#! source: DWARF 5 section 6.4.2.3 DW_CFA_restore
#! group: copy
#! view: copy
#! right: dwarf sframe
#@ popped: sorts < calls_qsort < outer < _start
        .include "prelude.inc"

FUNC sorts
        push    %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset rbp, -16
        mov     $11, %ebp
        pop     %rbp
        .cfi_def_cfa_offset 8
        .cfi_restore rbp
popped:
        ret
ENDFUNC sorts

FUNC calls_qsort
        FP_ENTER
        sub     $16, %rsp
        call    sorts
        leave
        .cfi_def_cfa rsp, 8
        .cfi_restore rbp
        ret
ENDFUNC calls_qsort

PLAIN_CALLER outer, calls_qsort
PLAIN_ROOT outer

#= sample dwarf sframe orc fp         guess
#= popped .     .      .   m1@1/US512 x1@4/US502
