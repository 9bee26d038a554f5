#! claim: A call to the next instruction whose address is popped is not a call.
#! source: gcc i386 PIC thunks; Intel optimization manual on call/return pairing
#! group: transfer
#! right: dwarf sframe orc
#@ popped: leaf < mid < _start
#@ deeper: deepest < leaf < mid < _start
        .include "prelude.inc"

FUNC deepest
deeper:
        ret
ENDFUNC deepest

FUNC leaf
        call    1f
        .cfi_adjust_cfa_offset 8
1:      pop     %rax
        .cfi_adjust_cfa_offset -8
popped:
        nop
        call    deepest
        ret
ENDFUNC leaf

PLAIN_CALLER mid, leaf
PLAIN_ROOT mid

#= sample dwarf sframe orc fp        guess
#= popped .     .      .   t@1/US512 x1@3/US502
#= deeper .     .      .   t@1/US512 x1@4/US502
