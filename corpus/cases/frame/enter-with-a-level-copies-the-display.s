#! claim: Enter with a nesting level pushes copies of outer frame pointers that are no frames.
#! source: Intel SDM volume 2, ENTER (nesting level 2)
#! group: frame
#! right: dwarf sframe orc fp
#@ inside: leaf < mid < outer < _start
        .include "prelude.inc"

FUNC leaf
        enter   $16, $2                 # pushes rbp, then mid's display entry, then rbp's copy
        .cfi_def_cfa rbp, 16
        .cfi_offset rbp, -16
inside:
        nop
        leave
        .cfi_def_cfa rsp, 8
        .cfi_restore rbp
        ret
ENDFUNC leaf

FP_CALLER mid, leaf
FP_CALLER outer, mid
FP_ROOT outer

#= sample dwarf sframe orc fp guess
#= inside .     .      .   .  x2@1/US502
