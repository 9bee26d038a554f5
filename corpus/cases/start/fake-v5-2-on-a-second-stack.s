#! claim: When the tracepoint lies on another stack, the mark is found there and not before.
#! source: Linux arch/x86/kernel/unwind_orc.c __unwind_start: skip while not on_stack(first_frame)
#!    or sp <= first_frame
#! group: start
#! regs: hw fake:v5.2
#! right: dwarf
#@ in_unwinder: unwind_start < on_other_stack < perf_trace_event < caller < outer < _start
#@ fetch fake own=in_unwinder: caller < outer < _start
        .include "prelude.inc"

FUNC unwind_start
        sub     $24, %rsp
        .cfi_def_cfa_offset 32
in_unwinder:
        add     $24, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC unwind_start

FUNC on_other_stack                     # the machinery runs on a stack of its own, below
        mov     %rsp, tos(%rip)
        lea     tos(%rip), %rsp
        .cfi_escape 0x0f, 5, 0x77, 0, 0x06, 0x23, 8 # CFA = *(rsp) + 8
        call    unwind_start
        pop     %rsp
        .cfi_def_cfa rsp, 8
        ret
ENDFUNC on_other_stack

FUNC perf_trace_event
        FP_ENTER
        sub     $64, %rsp
fetch:
        nop
        call    on_other_stack
        leave
        .cfi_def_cfa rsp, 8
        .cfi_restore rbp
        ret
ENDFUNC perf_trace_event

PLAIN_CALLER caller, perf_trace_event
PLAIN_CALLER outer, caller
PLAIN_ROOT outer

        .data
        .balign 16
        .fill   512, 8, POISON
tos:    .quad   0

#= sample            dwarf@hw dwarf@fake:v5.2 sframe@hw sframe@fake:v5.2 orc@hw orc@fake:v5.2
#= in_unwinder       .        -               t@2/US103 -                .      -
#= fetch/in_unwinder -        .               -         t@0/US103        -      .
#= sample            fp@hw      fp@fake:v5.2 guess@hw  guess@fake:v5.2
#= in_unwinder       m2@1/US512 -            w@2/US502 -
#= fetch/in_unwinder -          t@1/US512    -         x1@3/US502
