#! claim: A CFA left on rsp is wrong as soon as alloca moved it.
#! source: DWARF 5 section 6.4.2.2 DW_CFA_def_cfa_register
#! group: defect
#! right: dwarf
#! inject: register at the_call
#@ in_leaf: leaf < grows < outer < _start
        .include "prelude.inc"
FUNC leaf
in_leaf:
        nop
        ret
ENDFUNC leaf

FUNC grows
        push    %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset rbp, -16
        mov     %rsp, %rbp
        .ifndef DEFECT
        .cfi_def_cfa_register rbp
        .endif
        sub     $96, %rsp               # alloca
the_call:
        call    leaf
        leave
        .cfi_def_cfa rsp, 8
        .cfi_restore rbp
        ret
ENDFUNC grows

PLAIN_CALLER outer, grows
PLAIN_ROOT outer

#= sample  dwarf sframe orc fp         guess
#= in_leaf .     .      .   m1@1/US512 x1@4/US502
