#! claim: A malformed program of rows ends the walk in its function and nowhere else.
#! source: DWARF 5 section 6.4.2.4 DW_CFA_restore_state pops what remember_state pushed
#! group: tables
#! right: fp dwarf(at good)
#! wrong: dwarf(US105 at in_leaf)
#! covers: US105
#@ good: fine < mid < _start
#@ in_leaf: leaf < mid < _start
        .include "prelude.inc"

FUNC fine
        FP_ENTER
good:
        FP_LEAVE
        ret
ENDFUNC fine

FUNC leaf
        FP_ENTER
        .cfi_escape 0x0b                # DW_CFA_restore_state, the stack is empty
in_leaf:
        FP_LEAVE
        ret
ENDFUNC leaf

FUNC mid
        FP_ENTER
        call    fine
        call    leaf
        FP_LEAVE
        ret
ENDFUNC mid

FP_ROOT mid

#= sample  dwarf     sframe    orc       fp guess
#= good    .         .         .         .  x1@3/US502
#= in_leaf t@1/US105 t@1/US105 t@1/US105 .  x1@3/US502
