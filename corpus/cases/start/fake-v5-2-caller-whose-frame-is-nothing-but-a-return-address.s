#! claim: The frame behind the mark is kept even where it holds one word only.
#! source: Linux 5.2 arch/x86/kernel/unwind_orc.c: skip while state->sp <= first_frame
#! group: start
#! regs: fake:v5.2
#! right: orc dwarf
#@ fetch fake own=in_unwinder: caller < outer < _start
        .include "prelude.inc"

FUNC unwind_start
in_unwinder:
        nop
        ret
ENDFUNC unwind_start

FUNC perf_trace_event
        FP_ENTER
fetch:                                  # sp is the frame address: live rsp and mark are equal
        nop
        call    unwind_start
        FP_LEAVE
        ret
ENDFUNC perf_trace_event

FUNC caller                             # no frame at all: its sp at the call is mark + 16
        call    perf_trace_event
        ret
ENDFUNC caller

FUNC outer
        call    caller
        ret
ENDFUNC outer

PLAIN_ROOT outer

#= sample            dwarf@fake:v5.2 sframe@fake:v5.2 orc@fake:v5.2 fp@fake:v5.2 guess@fake:v5.2
#= fetch/in_unwinder .               .                .             t@1/US512    x1@3/US502
