#! claim: A CFA on the wrong callee-saved register ends at a nonce.
#! source: DWARF 5 section 6.4.2.2
#! group: defect
#! right: dwarf
#! inject: register at the_call
#@ in_leaf: leaf < by_r12 < outer < _start
        .include "prelude.inc"
FUNC leaf
in_leaf:
        nop
        ret
ENDFUNC leaf

FUNC by_r12
        push    %r12
        .cfi_def_cfa_offset 16
        .cfi_offset r12, -16
        mov     %rsp, %r12
        .ifdef  DEFECT
        .cfi_def_cfa_register rbx
        .else
        .cfi_def_cfa_register r12
        .endif
        and     $-64, %rsp
the_call:
        call    leaf
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
#= in_leaf .     t@2/US106 t@2/US103 t@1/US512 x1@4/US502
