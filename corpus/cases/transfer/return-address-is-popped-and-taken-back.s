#! claim: A function that pops its return address into memory, lowers rsp again and jumps keeps its
#!    caller.
#! source: OCaml 4.14 runtime/amd64.S, caml_c_call
#! group: transfer
#! right: dwarf
#@ in_call: c_call < outer < _start
#@ in_leaf: leaf < outer < _start
#@ back: outer < _start
        .include "prelude.inc"

FUNC leaf
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
in_leaf:
        pop     %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore rbx
        ret
ENDFUNC leaf

FUNC c_call
in_call:
        pop     last(%rip)
        .cfi_def_cfa_offset 0
        sub     $8, %rsp
        .cfi_def_cfa_offset 8
        lea     leaf(%rip), %rax
        jmp     *%rax
ENDFUNC c_call

FUNC outer
        sub     $8, %rsp
        .cfi_def_cfa_offset 16
        call    c_call
back:
        add     $8, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC outer

PLAIN_ROOT outer

        .bss
        .balign 8
last:   .zero   8
#= sample  dwarf sframe orc fp        guess
#= in_call .     .      .   t@1/US512 x1@3/US502
#= in_leaf .     .      .   t@1/US512 x1@3/US502
#= back    .     .      .   t@1/US512 x1@2/US502
