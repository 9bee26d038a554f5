#! claim: A register declared lost matters only to a row that depends on it.
#! source: DWARF 5 section 6.4.2.3 DW_CFA_undefined
#! group: dwarf
#! right: dwarf(at in_leaf)
#! wrong: dwarf(US104 at in_leaf#2)
#@ in_leaf: leaf < by_rsp < outer < _start
#@ in_leaf #2: leaf < by_rbx < outer < _start
        .include "prelude.inc"

FUNC leaf
        mov     %rbx, saved(%rip)       # kept where no rule can say it
        .cfi_undefined rbx
        xor     %ebx, %ebx
in_leaf:
        mov     saved(%rip), %rbx
        .cfi_restore rbx
        ret
ENDFUNC leaf

PLAIN_CALLER by_rsp, leaf

FUNC by_rbx
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
        mov     %rsp, %rbx
        .cfi_def_cfa_register rbx
        sub     $48, %rsp
        call    leaf
        mov     %rbx, %rsp
        .cfi_def_cfa_register rsp
        pop     %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore rbx
        ret
ENDFUNC by_rbx

FUNC outer
        sub     $8, %rsp
        .cfi_def_cfa_offset 16
        call    by_rsp
        call    by_rbx
        add     $8, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC outer

PLAIN_ROOT outer

        .bss
        .balign 8
saved:  .skip   8

#= sample    dwarf     sframe    orc       fp        guess
#= in_leaf   .         .         .         t@1/US512 x1@4/US502
#= in_leaf#2 t@2/US104 t@2/US106 t@2/US103 t@1/US512 x2@2/US502
