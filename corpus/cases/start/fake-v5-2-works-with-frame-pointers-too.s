#! claim: The mark of 5.2 serves the frame-pointer unwinder as well as the tables.
#! source: Linux 5.2 arch/x86/kernel/unwind_frame.c __unwind_start (first_frame)
#! group: start
#! regs: fake:v5.2
#! config: FRAME_POINTER=y
#! right: fp orc dwarf
#@ fetch fake own=in_unwinder: caller < outer < _start
        .include "prelude.inc"

FUNC unwind_start
        FP_ENTER
in_unwinder:
        FP_LEAVE
        ret
ENDFUNC unwind_start

FP_CALLER perf_tp_event, unwind_start

FUNC perf_trace_event
        FP_ENTER
        sub     $64, %rsp
fetch:
        nop
        call    perf_tp_event
        leave
        .cfi_def_cfa rsp, 8
        .cfi_restore rbp
        ret
ENDFUNC perf_trace_event

FP_CALLER caller, perf_trace_event
FP_CALLER outer, caller
FP_ROOT outer

#= sample            dwarf@fake:v5.2 sframe@fake:v5.2 orc@fake:v5.2 fp@fake:v5.2 guess@fake:v5.2
#= fetch/in_unwinder .               .                .             .            x1@3/US502
