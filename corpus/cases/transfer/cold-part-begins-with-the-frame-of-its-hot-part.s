#! claim: The cold part of a function is entered by a jump, with a frame already made.
#! source: gcc -freorder-blocks-and-partition (NAME.cold symbols)
#! group: transfer
#! right: dwarf sframe orc
#@ in_cold: work.cold < outer < _start
#@ in_leaf: leaf < work.cold < outer < _start
        .include "prelude.inc"

FUNC leaf
in_leaf:
        ret
ENDFUNC leaf

FUNC work
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
        sub     $48, %rsp
        .cfi_def_cfa_offset 64
        jmp     work.cold
back:
        add     $48, %rsp
        .cfi_def_cfa_offset 16
        pop     %rbx
        .cfi_def_cfa_offset 8
        ret
ENDFUNC work

PLAIN_CALLER outer, work
PLAIN_ROOT outer

        .section .text.unlikely, "ax", @progbits
FUNC work.cold
        .cfi_def_cfa_offset 64
        .cfi_offset rbx, -16
in_cold:
        nop
        call    leaf
        jmp     back
ENDFUNC work.cold

#= sample  dwarf sframe orc fp        guess
#= in_cold .     .      .   t@1/US512 x1@3/US502
#= in_leaf .     .      .   t@1/US512 x1@4/US502
