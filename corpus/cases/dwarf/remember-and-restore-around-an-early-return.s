#! claim: Behind an early return the remembered rows hold again.
#! source: DWARF 5 section 6.4.2.4; gcc shrink-wrapped epilogues
#! group: dwarf
#! right: dwarf sframe orc
#@ early: work < mid < _start
#@ body: work < mid < _start
#@ late: work < mid < _start
        .include "prelude.inc"

FUNC work
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
        sub     $32, %rsp
        .cfi_def_cfa_offset 48
        test    %edi, %edi
        jnz     body
        .cfi_remember_state
        add     $32, %rsp
        .cfi_def_cfa_offset 16
        pop     %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore rbx
early:
        ret
        .cfi_restore_state
body:
        nop
        add     $32, %rsp
        .cfi_def_cfa_offset 16
        pop     %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore rbx
late:
        ret
ENDFUNC work

FUNC mid
        sub     $8, %rsp
        .cfi_def_cfa_offset 16
        xor     %edi, %edi
        call    work
        mov     $1, %edi
        call    work
        add     $8, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC mid

PLAIN_ROOT mid

#= sample dwarf sframe orc fp        guess
#= early  .     .      .   t@1/US512 x1@3/US502
#= body   .     .      .   t@1/US512 x1@3/US502
#= late   .     .      .   t@1/US512 x1@3/US502
