#! claim: The assembler's own SFrame rows stay on rsp where the CFA moves to rbx.
#! source: binutils 2.40 gas/gen-sframe.c passes over DW_CFA_def_cfa_register to any other register;
#!    2.44 drops the function
#! group: tables
#! tables: eh_frame sframe
#! cflags: -Wa,--gsframe
#! assembler: 2.40
#! right: dwarf
#! wrong: sframe(US501)
#@ in_leaf: leaf < by_rbx < outer < _start
        .include "prelude.inc"

FUNC leaf
in_leaf:
        nop
        ret
ENDFUNC leaf

FUNC by_rbx
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
        mov     %rsp, %rbx
        .cfi_def_cfa_register rbx
        sub     $96, %rsp
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
#= in_leaf .     t@2/US501 t@2/US103 t@1/US512 x1@4/US502
