#! claim: A row that begins behind a call instead of before it is wrong for the caller.
#! source: DWARF 5 section 6.4.4
#! group: defect
#! right: dwarf
#! inject: late-row at the_call
#@ in_leaf: leaf < mid < outer < _start
#@ returned: mid < outer < _start
        .include "prelude.inc"
FUNC leaf
in_leaf:
        nop
        ret
ENDFUNC leaf

FUNC mid
        sub     $56, %rsp
        .ifndef DEFECT
        .cfi_def_cfa_offset 64
        .endif
the_call:
        call    leaf
        .ifdef  DEFECT
        .cfi_def_cfa_offset 64
        .endif
returned:
        nop
        add     $56, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC mid

PLAIN_CALLER outer, mid
PLAIN_ROOT outer

#= sample   dwarf sframe orc fp        guess
#= in_leaf  .     .      .   t@1/US512 x1@4/US502
#= returned .     .      .   t@1/US512 x1@3/US502
