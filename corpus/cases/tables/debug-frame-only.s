#! claim: Rules in .debug_frame are as good as those in .eh_frame.
#! source: DWARF 5 section 6.4.1; gcc -fno-asynchronous-unwind-tables -g
#! group: tables
#! tables: debug_frame
#! right: dwarf
#@ in_leaf: leaf < mid < _start
        .include "prelude.inc"
        .cfi_sections .debug_frame

FUNC leaf
in_leaf:
        ret
ENDFUNC leaf

PLAIN_CALLER mid, leaf
PLAIN_ROOT mid

#= sample  dwarf sframe    orc       fp        guess
#= in_leaf .     t@1/US102 t@1/US102 t@1/US512 x1@3/US502
