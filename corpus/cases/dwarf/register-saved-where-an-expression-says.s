#! claim: A register may be saved at an address that an expression computes, with branches in it.
#! source: DWARF 5 sections 2.5.1.5 (DW_OP_bra, DW_OP_skip) and 6.4.2.3 DW_CFA_expression
#! group: dwarf
#! right: dwarf
#@ in_leaf: leaf < by_rbx < outer < _start
        .include "prelude.inc"

FUNC leaf
        push    %rbx
        .cfi_def_cfa_offset 16
        # rbx at: CFA is on the stack; lit1; bra +4 -> skips (lit31, minus, skip 0);
        # const1u 16; minus
        .cfi_escape 0x10, 3, 12, 0x31, 0x28, 5, 0, 0x4f, 0x1c, 0x2f, 0, 0, 0x08, 16, 0x1c
        mov     $9, %ebx
in_leaf:
        nop
        pop     %rbx
        .cfi_def_cfa_offset 8
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
