#! claim: A table that the assembler wrote with --gsframe holds CFA, return address and rbp.
#! source: binutils gas --gsframe; SFrame specification
#! group: tables
#! tables: eh_frame sframe
#! cflags: -Wa,--gsframe
#! right: sframe dwarf
#@ in_leaf: leaf < mid < outer < _start
#@ in_mid: mid < outer < _start
        .include "prelude.inc"

FUNC leaf
        FP_ENTER
in_leaf:
        FP_LEAVE
        ret
ENDFUNC leaf

FUNC mid
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
in_mid:
        nop
        call    leaf
        pop     %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore rbx
        ret
ENDFUNC mid

PLAIN_CALLER outer, mid

        .globl  _start
        .type   _start, @function
_start:                                 # version 1 and 2 cannot say that there is no caller
        .cfi_startproc
        ROOT
        call    outer
        EXIT0
        .cfi_endproc
        .size   _start, . - _start

#= sample  dwarf sframe orc fp        guess
#= in_leaf .     .      .   t@2/US512 x1@4/US502
#= in_mid  .     .      .   t@1/US512 x1@3/US502
