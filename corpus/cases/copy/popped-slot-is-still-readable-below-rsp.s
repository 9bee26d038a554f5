#! claim: Behind pop rbp the table still points to the slot, which a CPU can read.
#! source: gcc bug 29440 (DW_CFA_restore after pop left out); glibc 2.36 msort_with_tmp+0x3fb61
#! group: copy
#! view: cpu
#! right: dwarf
#@ popped: sorts < calls_qsort < outer < _start
        .include "prelude.inc"

FUNC sorts
        push    %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset rbp, -16
        mov     $11, %ebp
        pop     %rbp
        .cfi_def_cfa_offset 8           # no .cfi_restore rbp: still CFA-16, now below rsp
popped:
        ret
ENDFUNC sorts

FUNC calls_qsort                        # CFA depends on rbp
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
