#! claim: The extended and signed factored forms mean the same as the short ones.
#! source: DWARF 5 section 6.4.2; LSB 5 Core 10.6.1.2 DW_CFA_GNU_negative_offset_extended
#! group: dwarf
#! right: dwarf
#@ in_leaf: leaf < by_rbx < outer < _start
        .include "prelude.inc"

FUNC leaf
        push    %rbx
        .cfi_escape 0x13, 0x7e          # DW_CFA_def_cfa_offset_sf -2 (by -8): 16
        .cfi_escape 0x05, 3, 3          # DW_CFA_offset_extended rbx, 3 (by -8): cfa-24, not yet
        .cfi_escape 0x11, 3, 2          # DW_CFA_offset_extended_sf rbx, 2: cfa-16
        .cfi_escape 0x12, 7, 0x7e       # DW_CFA_def_cfa_sf rsp, -2: rsp+16
        mov     $1, %ebx
in_leaf:
        nop
        pop     %rbx
        .cfi_escape 0x0c, 7, 8          # DW_CFA_def_cfa rsp, 8
        .cfi_escape 0x06, 3             # DW_CFA_restore_extended rbx
        ret
ENDFUNC leaf

FUNC by_rbx
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_escape 0x2f, 3, 0          # DW_CFA_GNU_negative_offset_extended rbx, 0: cfa
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
