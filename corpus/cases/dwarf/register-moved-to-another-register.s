#! claim: A leaf may keep its caller's rbx in r10.
#! source: DWARF 5 section 6.4.2.3 DW_CFA_register
#! group: dwarf
#! right: dwarf
#@ in_leaf: leaf < by_rbx < outer < _start
        .include "prelude.inc"

FUNC leaf
        mov     %rbx, %r10
        .cfi_register rbx, r10
        mov     $1, %ebx
in_leaf:
        mov     %r10, %rbx
        .cfi_restore rbx
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

#= sample  dwarf sframe    orc       fp        guess
#= in_leaf .     t@2/US106 t@2/US103 t@1/US512 x1@4/US502
