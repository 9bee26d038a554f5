#! claim: A row that begins one instruction late is wrong for that instruction only.
#! source: DWARF 5 section 6.4.2.2 (rows begin behind the instruction that changes the frame)
#! group: defect
#! right: dwarf
#! inject: late-row at gap
#@ gap: leaf < mid < _start
#@ behind: leaf < mid < _start
        .include "prelude.inc"
FUNC leaf
        push    %r14
        .ifndef DEFECT
        .cfi_def_cfa_offset 16
        .cfi_offset r14, -16
        .endif
gap:
        nop
        .ifdef  DEFECT
        .cfi_def_cfa_offset 16
        .cfi_offset r14, -16
        .endif
behind:
        nop
        pop     %r14
        .cfi_def_cfa_offset 8
        .cfi_restore r14
        ret
ENDFUNC leaf

PLAIN_CALLER mid, leaf
PLAIN_ROOT mid

#= sample dwarf sframe orc fp        guess
#= gap    .     .      .   t@1/US512 x1@3/US502
#= behind .     .      .   t@1/US512 x1@3/US502
