#! claim: A call on another stack is followed by loading the old rsp from the new one.
#! source: Linux arch/x86/include/asm/irq_stack.h (ORC SP_INDIRECT), call_on_stack
#! group: transfer
#! right: dwarf fp
#@ in_callee: callee < on_other_stack < outer < _start
        .include "prelude.inc"

FUNC callee
        FP_ENTER
in_callee:
        FP_LEAVE
        ret
ENDFUNC callee

FUNC on_other_stack
        FP_ENTER
        mov     %rsp, tos(%rip)
        lea     tos(%rip), %rsp
        .cfi_escape 0x0f, 5, 0x77, 0, 0x06, 0x23, 16 # CFA = *(rsp) + 16
        call    callee
        pop     %rsp
        .cfi_def_cfa rsp, 16
        FP_LEAVE
        ret
ENDFUNC on_other_stack

FP_CALLER outer, on_other_stack
FP_ROOT outer

        .data
        .balign 16
        .fill   512, 8, POISON
tos:    .quad   0

#= sample    dwarf sframe    orc fp guess
#= in_callee .     t@2/US103 .   .  w@2/US502
