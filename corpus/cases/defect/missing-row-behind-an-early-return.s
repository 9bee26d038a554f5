#! claim: Without restore_state the rows of the early return go on into the body.
#! source: DWARF 5 section 6.4.2.4
#! group: defect
#! right: dwarf
#! inject: missing-row at body
#@ body: work < mid < _start
        .include "prelude.inc"
FUNC work
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
        test    %ebx, %ebx
        jnz     body
        .cfi_remember_state
        pop     %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore rbx
        ret
        .ifndef DEFECT
        .cfi_restore_state
        .endif
body:
        nop
        pop     %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore rbx
        ret
ENDFUNC work

PLAIN_CALLER mid, work
PLAIN_ROOT mid

#= sample dwarf sframe orc fp        guess
#= body   .     .      .   t@1/US512 x1@3/US502
