#! claim: A caller with a wrong return-address slot loses everything above it, its CFA is right.
#! source: DWARF 5 section 6.4.1 (return address column)
#! group: defect
#! right: dwarf
#! inject: wrong-ra-slot at the_call
#@ in_leaf: leaf < mid < outer < _start
        .include "prelude.inc"
FUNC leaf
in_leaf:
        nop
        ret
ENDFUNC leaf

FUNC mid
        sub     $40, %rsp
        .cfi_def_cfa_offset 48
        .ifdef  DEFECT
        .cfi_offset rip, -24
        .endif
the_call:
        call    leaf
        add     $40, %rsp
        .cfi_def_cfa_offset 8
        .ifdef  DEFECT
        .cfi_offset rip, -8
        .endif
        ret
ENDFUNC mid

PLAIN_CALLER outer, mid
PLAIN_ROOT outer

#= sample  dwarf sframe orc fp        guess
#= in_leaf .     .      .   t@1/US512 x1@4/US502
