#! claim: Each move of rsp needs a row: two in this prologue, two in the epilogue that undoes it.
#! source: psABI 3.2.2; x64 prolog and epilog (Microsoft, 2019) has one description of both
#! group: frame
#! right: dwarf sframe orc
#@ at_push: leaf < mid < _start
#@ at_sub: leaf < mid < _start
#@ body: leaf < mid < _start
#@ at_pop: leaf < mid < _start
#@ at_ret: leaf < mid < _start
        .include "prelude.inc"

FUNC leaf
at_push:
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
at_sub:
        sub     $32, %rsp
        .cfi_def_cfa_offset 48
        mov     $7, %ebx
body:
        nop
        add     $32, %rsp
        .cfi_def_cfa_offset 16
at_pop:
        pop     %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore rbx
at_ret:
        ret
ENDFUNC leaf

PLAIN_CALLER mid, leaf
PLAIN_ROOT mid

#= sample  dwarf sframe orc fp        guess
#= at_push .     .      .   t@1/US512 x1@3/US502
#= at_sub  .     .      .   t@1/US512 x1@3/US502
#= body    .     .      .   t@1/US512 x1@3/US502
#= at_pop  .     .      .   t@1/US512 x1@3/US502
#= at_ret  .     .      .   t@1/US512 x1@3/US502
