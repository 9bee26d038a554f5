#! claim: An expression may load the CFA from the stack and add to it.
#! source: OpenSSL perlasm (.cfi_cfa_expression %rsp+56,deref,+8); DWARF 5 section 2.5.1.3
#! group: dwarf
#! right: dwarf
#@ in_leaf: leaf < aligned < outer < _start
#@ in_aligned: aligned < outer < _start
        .include "prelude.inc"

FUNC leaf
in_leaf:
        nop
        ret
ENDFUNC leaf

FUNC aligned
        mov     %rsp, %rax
        .cfi_def_cfa_register rax
        sub     $64, %rsp
        and     $-64, %rsp
        mov     %rax, 56(%rsp)
        .cfi_escape 0x0f, 5, 0x77, 56, 0x06, 0x23, 8 # CFA = *(rsp+56) + 8
in_aligned:
        xor     %eax, %eax
        call    leaf
        mov     56(%rsp), %rsp
        .cfi_def_cfa rsp, 8
        ret
ENDFUNC aligned

PLAIN_CALLER outer, aligned
PLAIN_ROOT outer

#= sample     dwarf sframe    orc       fp        guess
#= in_leaf    .     t@2/US103 t@2/US103 t@1/US512 x1@4/US502
#= in_aligned .     t@1/US103 t@1/US103 t@1/US512 x1@3/US502
