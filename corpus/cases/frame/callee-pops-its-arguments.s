#! claim: After ret 16 the caller's CFA offset is smaller again without any add.
#! source: Intel SDM volume 2, RET imm16
#! group: frame
#! right: dwarf orc sframe(at returned) sframe:callsite
#! wrong: sframe(US505 at in_callee) fp(US512 at in_callee, US512 at returned)
#@ in_callee: callee < pushes < mid < _start
#@ returned: pushes < mid < _start
        .include "prelude.inc"

FUNC callee
        nop
in_callee:
        ret     $16
ENDFUNC callee

FUNC pushes
        sub     $8, %rsp
        .cfi_def_cfa_offset 16
        push    $7
        .cfi_adjust_cfa_offset 8
        push    $9
        .cfi_adjust_cfa_offset 8
        call    callee
        .cfi_adjust_cfa_offset -16
returned:
        add     $8, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC pushes

PLAIN_CALLER mid, pushes
PLAIN_ROOT mid

#= sample    dwarf sframe    orc fp        guess      sframe:callsite
#= in_callee .     t@2/US505 .   t@1/US512 x1@4/US502 .
#= returned  .     .         .   t@1/US512 x1@3/US502 .
