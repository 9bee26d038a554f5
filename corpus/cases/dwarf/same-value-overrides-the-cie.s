#! claim: DW_CFA_same_value takes back a rule, DW_CFA_restore brings the CIE's.
#! source: DWARF 5 section 6.4.2.3
#! group: dwarf
#! right: dwarf
#@ in_leaf: leaf < by_rbx < outer < _start
        .include "prelude.inc"

        .type   leaf, @function
leaf:   .cfi_startproc simple
        .cfi_def_cfa rsp, 8
        .cfi_offset rip, -8
        .cfi_offset rbx, -64            # a rule that never holds
        .cfi_same_value rbx
in_leaf:
        nop
        ret
        .cfi_endproc
        .size   leaf, . - leaf

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
