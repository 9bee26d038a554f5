#! claim: SP_INDIRECT loads the other stack's sp from the top of this one and adds the offset.
#! source: Linux 87ccc826bf1c (5.12) "x86/unwind/orc: Change REG_SP_INDIRECT";
#!    arch/x86/include/asm/irq_stack.h
#! group: orc
#! tables: orc
#! right: orc
#@ in_callee: callee < on_other_stack < outer < _start
        .include "prelude.inc"
        .include "orc.inc"

FUNC_NO_CFI callee
        ORC     ORC_SP, 8
in_callee:
        nop
        ret
ENDFUNC_NO_CFI callee

FUNC_NO_CFI on_other_stack
        ORC     ORC_SP, 8
        mov     %rsp, tos(%rip)
        lea     tos(%rip), %rsp
        ORC     ORC_SP_INDIRECT, 8
        call    callee
        pop     %rsp
        ORC     ORC_SP, 8
        ret
ENDFUNC_NO_CFI on_other_stack

ORC_CALLER outer, on_other_stack
ORC_ROOT outer

        .data
        .balign 16
        .fill   512, 8, POISON
tos:    .quad   0

#= sample    dwarf     sframe    orc fp        guess
#= in_callee t@1/US102 t@1/US102 .   t@1/US512 w@2/US502
