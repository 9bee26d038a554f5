#! claim: A function that is jumped to with its return address in a register has a caller, and sp
#!    need not advance there, in an outer frame either.
#! source: gdb shows the frames; DWARF 5 6.4.2.3, DW_CFA_register of the return address
#! group: transfer
#! right: dwarf
#@ in_helper: helper < outer < _start
#@ in_leaf: leaf < helper < outer < _start
#@ back: outer < _start
        .include "prelude.inc"

FUNC leaf
in_leaf:
        nop
        ret
ENDFUNC leaf

FUNC helper
        .cfi_def_cfa_offset 0
        .cfi_register rip, r13
in_helper:
        call    leaf
        jmp     *%r13
ENDFUNC helper

FUNC outer
        push    %r13
        .cfi_def_cfa_offset 16
        .cfi_offset r13, -16
        lea     back(%rip), %r13
        jmp     helper
        nop
back:
        pop     %r13
        .cfi_def_cfa_offset 8
        .cfi_restore r13
        ret
ENDFUNC outer

PLAIN_ROOT outer
#= sample    dwarf sframe    orc       fp        guess
#= in_helper .     .         t@1/US103 t@1/US512 m1@1/US502
#= in_leaf   .     t@2/US106 t@2/US103 t@1/US512 m1@2/US502
#= back      .     .         .         t@1/US512 x1@2/US502
