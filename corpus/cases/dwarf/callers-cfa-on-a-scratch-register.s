#! claim: A caller whose CFA depends on r11 cannot be followed: no callee keeps r11.
#! source: OpenSSL perlasm; psABI 3.2.1 (r11 belongs to the callee)
#! group: dwarf
#! wrong: dwarf(US106)
#! covers: US106
#@ in_leaf: leaf < on_r11 < outer < _start
        .include "prelude.inc"

FUNC leaf
        mov     $1, %r11d               # its right
in_leaf:
        nop
        ret
ENDFUNC leaf

FUNC on_r11
        mov     %rsp, %r11
        .cfi_def_cfa_register r11
        sub     $64, %rsp
        and     $-64, %rsp
        mov     %r11, 8(%rsp)
        call    leaf
        mov     8(%rsp), %rsp
        .cfi_def_cfa_register rsp
        ret
ENDFUNC on_r11

PLAIN_CALLER outer, on_r11
PLAIN_ROOT outer

#= sample  dwarf     sframe    orc       fp        guess
#= in_leaf t@2/US106 t@2/US106 t@2/US103 t@1/US512 x1@4/US502
