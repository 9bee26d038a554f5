#! claim: A caller that forgets its pushed arguments is off by their size at the call only.
#! source: gcc -mno-accumulate-outgoing-args; DWARF 5 section 6.4.2.2
#! group: defect
#! right: dwarf
#! inject: offset at the_call
#@ before: mid < outer < _start
#@ in_leaf: leaf < mid < outer < _start
        .include "prelude.inc"
FUNC leaf
in_leaf:
        nop
        ret
ENDFUNC leaf

FUNC mid
        sub     $8, %rsp
        .cfi_def_cfa_offset 16
before:
        push    $7
        .ifndef DEFECT
        .cfi_def_cfa_offset 24
        .endif
        push    $9
        .ifdef  DEFECT
        .cfi_def_cfa_offset 24
        .else
        .cfi_def_cfa_offset 32
        .endif
the_call:
        call    leaf
        add     $24, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC mid

PLAIN_CALLER outer, mid
PLAIN_ROOT outer

#= sample  dwarf sframe orc fp        guess
#= before  .     .      .   t@1/US512 x1@3/US502
#= in_leaf .     .      .   t@1/US512 x1@4/US502
