#! claim: Arguments pushed for a callee lie between the caller's frame and the return address.
#! source: gcc -mno-accumulate-outgoing-args; DW_CFA_GNU_args_size in LSB 5 Core 10.6.1.2
#! group: frame
#! right: dwarf sframe orc
#! wrong: fp(US512)
#@ in_callee: callee < pushes < mid < _start
        .include "prelude.inc"

FUNC callee
in_callee:
        mov     8(%rsp), %rax
        ret
ENDFUNC callee

FUNC pushes
        sub     $8, %rsp
        .cfi_def_cfa_offset 16
        push    $7
        .cfi_adjust_cfa_offset 8
        push    $9
        .cfi_adjust_cfa_offset 8
        .cfi_escape 0x2e, 16            # DW_CFA_GNU_args_size 16
        call    callee
        add     $16, %rsp
        .cfi_adjust_cfa_offset -16
        .cfi_escape 0x2e, 0
        add     $8, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC pushes

PLAIN_CALLER mid, pushes
PLAIN_ROOT mid

#= sample    dwarf sframe orc fp        guess
#= in_callee .     .      .   t@1/US512 x1@4/US502
