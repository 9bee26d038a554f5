#! claim: The second FDE of a function begins anew with the CIE's rules.
#! source: DWARF 5 section 6.4.1; gas manual (.cfi_endproc and .cfi_startproc in one function)
#! group: tables
#! right: dwarf sframe orc
#@ in_first: leaf < mid < _start
#@ in_second: leaf < mid < _start
        .include "prelude.inc"

        .type   leaf, @function
leaf:   .cfi_startproc
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
in_first:
        nop
        .cfi_endproc
        .cfi_startproc                  # all over again
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
in_second:
        pop     %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore rbx
        ret
        .cfi_endproc
        .size   leaf, . - leaf

PLAIN_CALLER mid, leaf
PLAIN_ROOT mid

#= sample    dwarf sframe orc fp        guess
#= in_first  .     .      .   t@1/US512 x1@3/US502
#= in_second .     .      .   t@1/US512 x1@3/US502
