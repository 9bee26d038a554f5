#! claim: Each register saved at another depth comes back to the frame that depends on it.
#! source: psABI 3.2.1; gcc pushes only what a function uses
#! group: dwarf
#! right: dwarf
#@ in_leaf: leaf < saves_r12 < saves_rbx < by_rbx < by_r12 < outer < _start
        .include "prelude.inc"

FUNC leaf
in_leaf:
        nop
        ret
ENDFUNC leaf

FUNC saves_r12
        push    %r12
        .cfi_def_cfa_offset 16
        .cfi_offset r12, -16
        mov     $12, %r12d
        call    leaf
        pop     %r12
        .cfi_def_cfa_offset 8
        .cfi_restore r12
        ret
ENDFUNC saves_r12

FUNC saves_rbx
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
        mov     $3, %ebx
        call    saves_r12
        pop     %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore rbx
        ret
ENDFUNC saves_rbx

FUNC by_rbx
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
        mov     %rsp, %rbx
        .cfi_def_cfa_register rbx
        and     $-64, %rsp
        call    saves_rbx
        mov     %rbx, %rsp
        .cfi_def_cfa_register rsp
        pop     %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore rbx
        ret
ENDFUNC by_rbx

FUNC by_r12
        push    %r12
        .cfi_def_cfa_offset 16
        .cfi_offset r12, -16
        mov     %rsp, %r12
        .cfi_def_cfa_register r12
        and     $-64, %rsp
        call    by_rbx
        mov     %r12, %rsp
        .cfi_def_cfa_register rsp
        pop     %r12
        .cfi_def_cfa_offset 8
        .cfi_restore r12
        ret
ENDFUNC by_r12

PLAIN_CALLER outer, by_r12
PLAIN_ROOT outer

#= sample  dwarf sframe    orc       fp        guess
#= in_leaf .     t@4/US106 t@4/US103 t@1/US512 x1@7/US502
