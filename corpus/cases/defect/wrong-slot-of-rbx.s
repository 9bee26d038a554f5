#! claim: A wrong slot for rbx shows at the caller whose CFA depends on it.
#! source: DWARF 5 section 6.4.2.3 DW_CFA_offset
#! group: defect
#! right: dwarf
#! inject: wrong-slot at in_leaf
#@ in_leaf: leaf < by_rbx < outer < _start
        .include "prelude.inc"
FUNC leaf
        push    %rbx
        .cfi_def_cfa_offset 16
        sub     $16, %rsp
        .cfi_def_cfa_offset 32
        .ifdef  DEFECT
        .cfi_offset rbx, -24
        .else
        .cfi_offset rbx, -16
        .endif
        mov     $17, %ebx
in_leaf:
        nop
        add     $16, %rsp
        .cfi_def_cfa_offset 16
        pop     %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore rbx
        ret
ENDFUNC leaf

FUNC by_rbx                             # CFA depends on rbx
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
