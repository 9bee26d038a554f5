#! claim: Behind pop rbp the slot is below rsp: a profiler's copy does not have it.
#! source: gcc bug 29440; glibc 2.36 msort_with_tmp+0x3fb61 called from qsort_r (perf loses 4 of 6
#!    frames)
#! group: copy
#! view: copy
#! wrong: dwarf(US203)
#! covers: US203
#@ popped: sorts < calls_qsort < outer < _start
        .include "prelude.inc"

FUNC sorts
        push    %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset rbp, -16
        mov     $11, %ebp
        pop     %rbp
        .cfi_def_cfa_offset 8
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

#= sample dwarf     sframe    orc       fp         guess
#= popped t@2/US203 t@2/US203 t@2/US203 m1@1/US512 x1@4/US502
