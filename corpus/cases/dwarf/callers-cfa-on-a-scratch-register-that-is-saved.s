#! claim: A saved r11 is not callee-saved: an unwinder that carries only those loses the caller.
#! source: DWARF 5 section 6.4.1: any column may have a rule
#! group: dwarf
#! wrong: dwarf(US106)
#@ in_leaf: leaf < on_r11 < outer < _start
        .include "prelude.inc"

FUNC leaf
        push    %r11
        .cfi_def_cfa_offset 16
        .cfi_offset r11, -16
        mov     $1, %r11d
in_leaf:
        pop     %r11
        .cfi_def_cfa_offset 8
        .cfi_same_value r11
        ret
ENDFUNC leaf

FUNC on_r11
        mov     %rsp, %r11
        .cfi_def_cfa_register r11
        sub     $64, %rsp
        and     $-64, %rsp
        call    leaf
        mov     %r11, %rsp
        .cfi_def_cfa_register rsp
        ret
ENDFUNC on_r11

PLAIN_CALLER outer, on_r11
PLAIN_ROOT outer

#= sample  dwarf     sframe    orc       fp        guess
#= in_leaf t@2/US106 t@2/US106 t@2/US103 t@1/US512 x1@4/US502
