#! claim: With frame pointers everywhere the caller's ip and bp are a state that was.
#! source: Linux 5.1 arch/x86/include/asm/stacktrace.h caller_frame_pointer (CONFIG_FRAME_POINTER)
#! group: start
#! regs: fake:v5.1
#! config: FRAME_POINTER=y
#! right: fp dwarf
#@ fetch fake own=in_unwinder: caller < outer < _start
        .include "prelude.inc"

FUNC unwind_start
        FP_ENTER
in_unwinder:
        FP_LEAVE
        ret
ENDFUNC unwind_start

FUNC perf_trace_event
        FP_ENTER
        sub     $64, %rsp
fetch:
        nop
        call    unwind_start
        leave
        .cfi_def_cfa rsp, 8
        .cfi_restore rbp
        ret
ENDFUNC perf_trace_event

FP_CALLER caller, perf_trace_event
FP_CALLER outer, caller
FP_ROOT outer

#= sample            dwarf@fake:v5.1 sframe@fake:v5.1 orc@fake:v5.1 fp@fake:v5.1 guess@fake:v5.1
#= fetch/in_unwinder .               .                .             .            x2@1/US502
