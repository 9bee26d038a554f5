#! claim: CFI, SFrame and ORC say the same of an array of variable length, but for rbp behind leave.
#! source: corpus/sframe/t_2.46, vla: GCC's code and rows; Linux 6.12
#!    arch/x86/include/asm/orc_types.h
#! group: orc
#! tables: eh_frame orc
#! right: dwarf sframe orc
#@ behind_push: vla < _start
#@ in_leaf: leaf < vla < _start
#@ behind_leave: vla < _start
        .include "prelude.inc"
        .include "orc.inc"

FUNC leaf
        ORC     ORC_SP, 8
in_leaf:
        lea     1(%rdi,%rdi,2), %eax
        ret
ENDFUNC leaf

FUNC vla
        ORC     ORC_SP, 8
        lea     16(%rdi), %eax
        push    %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset rbp, -16
        ORC     ORC_SP, 16, ORC_PREV_SP, -16
behind_push:
        mov     %edi, %edx
        cltq
        add     $15, %rax
        and     $-16, %rax
        mov     %rsp, %rbp
        .cfi_def_cfa_register rbp
        ORC     ORC_BP, 16, ORC_PREV_SP, -16
        sub     %rax, %rsp
        movslq  %edi, %rax
        movb    $1, (%rsp,%rax)
        movsbl  (%rsp,%rax), %edi
        call    leaf
        mov     %edx, %edi
        mov     %eax, %esi
        call    leaf                    # of another function in GCC's code
        leave
        .cfi_def_cfa rsp, 8             # GCC writes no .cfi_restore: the word still holds the value
        ORC     ORC_SP, 8
behind_leave:
        add     %esi, %eax
        ret
ENDFUNC vla

        .globl  _start
        .type   _start, @function
_start:
        .cfi_startproc
        ORC_END_OF_STACK
        ROOT    rbp=0
        mov     $16, %edi
        call    vla
        EXIT0
        .cfi_endproc
        .size   _start, . - _start
        ORC_LOST                        # the table's terminator
#= sample       dwarf sframe orc fp         guess
#= behind_push  .     .      .   t@1/US512  x1@2/US502
#= in_leaf      .     .      .   m1@1/US512 x1@3/US502
#= behind_leave .     .      .   t@1/US512  x1@2/US502
