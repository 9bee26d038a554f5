#! claim: A caller's register may be computed from another one.
#! source: DWARF 5 section 6.4.2.3 DW_CFA_val_expression
#! group: dwarf
#! right: dwarf
#@ in_leaf: leaf < by_rbx < outer < _start
        .include "prelude.inc"

FUNC leaf                               # keeps rbx - 5 in r12, whose own value is pushed
        push    %r12
        .cfi_def_cfa_offset 16
        .cfi_offset r12, -16
        lea     -5(%rbx), %r12
        mov     $1, %ebx
        .cfi_escape 0x16, 3, 2, 0x7c, 5 # rbx = r12 + 5
in_leaf:
        lea     5(%r12), %rbx
        .cfi_restore rbx
        pop     %r12
        .cfi_def_cfa_offset 8
        .cfi_restore r12
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
