#! claim: The part of a function behind its FDE's end is executed without a row.
#! source: DWARF 5 section 6.4.1 address_range; hand-written code with .cfi_endproc too early
#! group: tables
#! right: dwarf(at inside)
#! wrong: dwarf(US504 at outside)
#! covers: US504
#@ inside: leaf < mid < _start
#@ outside: leaf < mid < _start
        .include "prelude.inc"

        .type   leaf, @function
leaf:   .cfi_startproc
inside: nop
        .cfi_endproc
outside:
        nop
        ret
        .size   leaf, . - leaf

PLAIN_CALLER mid, leaf
PLAIN_ROOT mid

#= sample  dwarf     sframe    orc       fp        guess
#= inside  .         .         .         t@1/US512 x1@3/US502
#= outside t@1/US504 t@1/US504 t@1/US504 t@1/US512 x1@3/US502
