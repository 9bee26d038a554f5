#! claim: Any number of tail calls in a row leaves one frame.
#! source: gcc -foptimize-sibling-calls; DWARF 5 section 2.2 DW_TAG_call_site (tail calls leave no
#!    frame)
#! group: transfer
#! right: dwarf sframe orc fp(at in_last)
#@ in_last: third < outer < _start
        .include "prelude.inc"

FUNC first
        FP_ENTER
        FP_LEAVE
        jmp     second
ENDFUNC first

FUNC second
        jmp     third
ENDFUNC second

FUNC third
        FP_ENTER
in_last:
        FP_LEAVE
        ret
ENDFUNC third

FP_CALLER outer, first
FP_ROOT outer

#= sample  dwarf sframe orc fp guess
#= in_last .     .      .   .  x1@3/US502
