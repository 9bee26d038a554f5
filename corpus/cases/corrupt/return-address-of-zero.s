#! claim: A zero return address is not a root unless the table or the frame pointer says so.
#! source: psABI 3.4.1 marks the root by rbp, not by the return address; musl and Go write zeroes
#! group: corrupt
#! memory: rsp+24 = 0 @in_leaf
#! wrong: dwarf(US402)
#! covers: US402
#@ in_leaf: leaf < mid < outer < _start
        .include "prelude.inc"

FUNC leaf
        sub     $24, %rsp
        .cfi_def_cfa_offset 32
in_leaf:
        add     $24, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC leaf

PLAIN_CALLER mid, leaf
PLAIN_CALLER outer, mid
PLAIN_ROOT outer

#= sample  dwarf     sframe    orc       fp        guess
#= in_leaf t@1/US402 t@1/US402 t@1/US402 t@1/US512 m1@1/US502
