#! claim: A row that calls rsp undefined still says where the frame ends: the caller's rsp is the
#!    CFA.
#! source: DWARF 5 6.4.1, the CFA is rsp at the call; gdb and elfutils walk on
#! group: dwarf
#! right: dwarf
#@ in_leaf: leaf < mid < _start
        .include "prelude.inc"

FUNC leaf
        FP_ENTER
        .cfi_undefined rsp
in_leaf:
        nop
        FP_LEAVE
        .cfi_restore rsp
        ret
ENDFUNC leaf

PLAIN_CALLER mid, leaf
PLAIN_ROOT mid
#= sample  dwarf sframe    orc       fp        guess
#= in_leaf .     t@1/US103 t@1/US103 t@2/US512 x1@3/US502
