#! claim: Between pop and the late row the CFA is 8 too high.
#! source: DWARF 5 section 6.4.2.2
#! group: defect
#! right: dwarf
#! inject: late-row at gap
#@ gap: leaf < mid < _start
        .include "prelude.inc"
FUNC leaf
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
        nop
        pop     %rbx
        .ifndef DEFECT
        .cfi_def_cfa_offset 8
        .cfi_restore rbx
        .endif
gap:
        nop
        .ifdef  DEFECT
        .cfi_def_cfa_offset 8
        .cfi_restore rbx
        .endif
        ret
ENDFUNC leaf

PLAIN_CALLER mid, leaf
PLAIN_ROOT mid

#= sample dwarf sframe orc fp        guess
#= gap    .     .      .   t@1/US512 x1@3/US502
