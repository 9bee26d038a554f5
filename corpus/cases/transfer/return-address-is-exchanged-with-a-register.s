#! claim: A function that exchanges its return address with a register, and back, keeps its caller.
#! source: AMD64 APM volume 3, XCHG; symmetric coroutines exchange the two this way
#! group: transfer
#! right: dwarf
#@ exchanged: leaf < outer < _start
#@ in_leaf: leaf < outer < _start
        .include "prelude.inc"

FUNC leaf
        xchg    %rcx, (%rsp)
        .cfi_register rip, rcx
exchanged:
        nop
        xchg    %rcx, (%rsp)
        .cfi_offset rip, -8
in_leaf:
        ret
ENDFUNC leaf

FUNC outer
        sub     $8, %rsp
        .cfi_def_cfa_offset 16
        call    leaf
        add     $8, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC outer

PLAIN_ROOT outer
#= sample    dwarf sframe orc       fp        guess
#= exchanged .     .      t@1/US103 t@1/US512 m1@1/US502
#= in_leaf   .     .      .         t@1/US512 x1@3/US502
