#! claim: A caller's rbp that is known to be CFA+16 needs no slot at all.
#! source: DWARF 5 section 6.4.2.3 DW_CFA_val_offset; gcc IA-64 and s390x output
#! group: dwarf
#! right: dwarf
#@ in_leaf: leaf < keeps < outer < _start
        .include "prelude.inc"

FUNC leaf                               # called with rbp = its CFA + 16; not saved anywhere
        mov     $12345, %ebp
        .cfi_val_offset rbp, 16
in_leaf:
        nop
        lea     24(%rsp), %rbp
        .cfi_restore rbp
        ret
ENDFUNC leaf

FUNC keeps
        FP_ENTER
        sub     $16, %rsp               # rbp = rsp+16 at the call
        call    leaf
        leave
        .cfi_def_cfa rsp, 8
        .cfi_restore rbp
        ret
ENDFUNC keeps

PLAIN_CALLER outer, keeps
PLAIN_ROOT outer

#= sample  dwarf sframe    orc       fp        guess
#= in_leaf .     t@1/US103 t@1/US103 t@1/US512 x1@4/US502
