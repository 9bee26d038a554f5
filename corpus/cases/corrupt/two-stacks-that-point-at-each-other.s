#! claim: Tables that load the CFA from memory may change stacks, so only the set of frames seen
#!    stops them.
#! source: Linux unwind_orc.c "stack going in the wrong direction"; ORC SP_INDIRECT and IRQ stacks
#! group: corrupt
#! memory: tos = tos-16 @in_callee
#! memory: tos-8 = back @in_callee
#! wrong: dwarf(US205)
#! covers: US205
#@ in_callee: callee < on_other_stack < outer < _start
        .include "prelude.inc"

FUNC callee
in_callee:
        nop
        ret
ENDFUNC callee

FUNC on_other_stack
        FP_ENTER
        mov     %rsp, tos(%rip)
        lea     tos(%rip), %rsp
        .cfi_escape 0x0f, 5, 0x77, 0, 0x06, 0x23, 16 # CFA = *(rsp) + 16
        call    callee
back:                                   # the corrupted chain comes back to this address
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

#= sample    dwarf   sframe    orc     fp         guess
#= in_callee l/US205 t@2/US103 l/US205 m1@1/US512 w@2/US502
