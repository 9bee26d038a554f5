#! claim: A wrong slot is found out only where the register is needed, frames later.
#! source: DWARF 5 section 6.4.3; unwinding carries registers through frames that do not use them
#! group: defect
#! right: dwarf
#! inject: wrong-slot at in_leaf
#@ in_leaf: leaf < one < two < by_rbx < outer < _start
        .include "prelude.inc"
FUNC leaf
        push    %rbx
        .cfi_def_cfa_offset 16
        sub     $24, %rsp
        .cfi_def_cfa_offset 40
        .ifdef  DEFECT
        .cfi_offset rbx, -32
        .else
        .cfi_offset rbx, -16
        .endif
        mov     $17, %ebx
in_leaf:
        nop
        add     $24, %rsp
        .cfi_def_cfa_offset 16
        pop     %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore rbx
        ret
ENDFUNC leaf

PLAIN_CALLER one, leaf
PLAIN_CALLER two, one

FUNC by_rbx                             # CFA depends on rbx
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
        mov     %rsp, %rbx
        .cfi_def_cfa_register rbx
        and     $-64, %rsp
        call    two
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
#= in_leaf .     t@4/US106 t@4/US103 t@1/US512 x1@6/US502
