#! claim: A function that jumps to another one is no longer in the chain.
#! source: psABI 3.2.2; gcc -foptimize-sibling-calls
#! group: transfer
#! right: dwarf sframe orc
#@ in_last: last < outer < _start
        .include "prelude.inc"

FUNC last
        sub     $24, %rsp
        .cfi_def_cfa_offset 32
in_last:
        add     $24, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC last

FUNC gone
        sub     $40, %rsp
        .cfi_def_cfa_offset 48
        nop
        add     $40, %rsp
        .cfi_def_cfa_offset 8
        jmp     last
ENDFUNC gone

PLAIN_CALLER outer, gone
PLAIN_ROOT outer

#= sample  dwarf sframe orc fp        guess
#= in_last .     .      .   t@1/US512 x1@3/US502
