#! claim: An rbp rule that begins behind the alloca it should survive is late.
#! source: DWARF 5 section 6.4.2.2 DW_CFA_def_cfa_register
#! group: defect
#! right: dwarf
#! inject: late-row at gap
#@ gap: leaf < mid < _start
#@ behind: leaf < mid < _start
        .include "prelude.inc"
FUNC leaf
        push    %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset rbp, -16
        mov     %rsp, %rbp
        .ifndef DEFECT
        .cfi_def_cfa_register rbp
        .endif
        sub     $32, %rsp
gap:
        nop
        .ifdef  DEFECT
        .cfi_def_cfa_register rbp
        .endif
behind:
        nop
        leave
        .cfi_def_cfa rsp, 8
        .cfi_restore rbp
        ret
ENDFUNC leaf

PLAIN_CALLER mid, leaf
PLAIN_ROOT mid

#= sample dwarf sframe orc fp        guess
#= gap    .     .      .   t@2/US512 x1@3/US502
#= behind .     .      .   t@2/US512 x1@3/US502
