#! claim: A push without .cfi_offset is seen only where a caller's CFA depends on the register.
#! source: llvm and gcc bugs on missing .cfi_offset; DWARF 5 section 6.4.3 (the default is same
#!    value)
#! group: tables
#! right: dwarf(at in_leaf)
#! wrong: dwarf(US503 at in_leaf#2)
#! covers: US503
#@ in_leaf: leaf < silent < by_rsp < outer < _start
#@ in_leaf #2: leaf < silent < by_rbx < outer < _start
        .include "prelude.inc"

FUNC leaf
in_leaf:
        nop
        ret
ENDFUNC leaf

FUNC silent                             # changes rbx and does not say so
        push    %rbx
        .cfi_def_cfa_offset 16
        mov     $99, %ebx
        call    leaf
        pop     %rbx
        .cfi_def_cfa_offset 8
        ret
ENDFUNC silent

PLAIN_CALLER by_rsp, silent

FUNC by_rbx
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
        mov     %rsp, %rbx
        .cfi_def_cfa_register rbx
        sub     $32, %rsp
        call    silent
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

#= sample    dwarf     sframe    orc       fp        guess
#= in_leaf   .         .         .         t@1/US512 x1@5/US502
#= in_leaf#2 t@3/US503 t@3/US106 t@3/US103 t@1/US512 x2@3/US502
