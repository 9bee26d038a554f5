#! claim: A binary may have the same rules twice.
#! source: gas manual, .cfi_sections; DWARF 5 section 6.4.1
#! group: tables
#! tables: eh_frame debug_frame
#! right: dwarf
#@ in_leaf: leaf < mid < _start
        .include "prelude.inc"
        .cfi_sections .eh_frame, .debug_frame

FUNC leaf
        push    %r12
        .cfi_def_cfa_offset 16
        .cfi_offset r12, -16
in_leaf:
        pop     %r12
        .cfi_def_cfa_offset 8
        .cfi_restore r12
        ret
ENDFUNC leaf

PLAIN_CALLER mid, leaf
PLAIN_ROOT mid

#= sample  dwarf sframe orc fp        guess
#= in_leaf .     .      .   t@1/US512 x1@3/US502
