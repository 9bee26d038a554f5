#! claim: A saved rbx that was overwritten breaks the caller whose CFA depends on it.
#! source: buffer overruns below the return address; gcc -fstack-protector guards only the top
#! group: corrupt
#! memory: rsp = 0x0d0d0d0d0d0d0d0d @in_leaf
#! wrong: dwarf(US201)
#@ in_leaf: leaf < by_rbx < outer < _start
        .include "prelude.inc"

FUNC leaf
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
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

#= sample  dwarf     sframe    orc       fp        guess
#= in_leaf t@2/US201 t@2/US106 t@2/US103 t@1/US512 x1@4/US502
