#! claim: In the sampled function a CFA on r11 or rax can be followed, the registers are known.
#! source: OpenSSL perlasm (libcrypto call sites with CFA on r11 and rax, e.g. sha512-x86_64.pl)
#! group: dwarf
#! right: dwarf
#@ on_r11: leaf < outer < _start
#@ on_rax: leaf < outer < _start
        .include "prelude.inc"

FUNC leaf
        mov     %rsp, %r11
        .cfi_def_cfa_register r11
        and     $-64, %rsp
        sub     $64, %rsp
on_r11:
        lea     -40(%r11), %rax
        .cfi_def_cfa rax, 48
on_rax:
        lea     40(%rax), %rsp
        .cfi_def_cfa rsp, 8
        ret
ENDFUNC leaf

PLAIN_CALLER outer, leaf
PLAIN_ROOT outer

#= sample dwarf sframe orc       fp        guess
#= on_r11 .     .      t@1/US103 t@1/US512 x1@3/US502
#= on_rax .     .      t@1/US103 t@1/US512 x1@3/US502
