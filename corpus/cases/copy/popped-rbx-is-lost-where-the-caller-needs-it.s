#! claim: A popped rbx outside the copy breaks a caller whose CFA depends on rbx.
#! source: gcc bug 29440; glibc sysdeps/x86_64/dl-trampoline.S (CFA by rbx)
#! group: copy
#! view: copy
#! wrong: dwarf(US203)
#@ popped: leaf < by_rbx < outer < _start
        .include "prelude.inc"

FUNC leaf
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
        mov     $5, %ebx
        pop     %rbx
        .cfi_def_cfa_offset 8
popped:
        ret
ENDFUNC leaf

FUNC by_rbx
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
        mov     %rsp, %rbx
        .cfi_def_cfa_register rbx
        and     $-64, %rsp
        call    leaf
        mov     %rbx, %rsp
        .cfi_def_cfa_register rsp
        pop     %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore rbx
        ret
ENDFUNC by_rbx

PLAIN_CALLER outer, by_rbx
PLAIN_ROOT outer

#= sample dwarf     sframe    orc       fp        guess
#= popped t@2/US203 t@2/US106 t@2/US103 t@1/US512 x1@4/US502
