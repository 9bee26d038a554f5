#! claim: With the frame address as mark every function of the tracing path is skipped, no other.
#! source: Linux d15d356887e7 (5.2) "perf/x86: Make perf callchains work without
#!    CONFIG_FRAME_POINTER"
#! group: start
#! regs: hw fake:v5.2
#! right: orc dwarf
#@ in_unwinder: unwind_start < perf_callchain < perf_tp_event < perf_trace_event < caller < outer <
#@    _start
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

PLAIN_CALLER perf_callchain, unwind_start
PLAIN_CALLER perf_tp_event, perf_callchain

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

PLAIN_CALLER caller, perf_trace_event
PLAIN_CALLER outer, caller
PLAIN_ROOT outer

#= sample            dwarf@hw dwarf@fake:v5.2 sframe@hw sframe@fake:v5.2 orc@hw orc@fake:v5.2
#= in_unwinder       .        -               .         -                .      -
#= fetch/in_unwinder -        .               -         .                -      .
#= sample            fp@hw      fp@fake:v5.2 guess@hw   guess@fake:v5.2
#= in_unwinder       m3@1/US512 -            x1@7/US502 -
#= fetch/in_unwinder -          t@1/US512    -          x1@3/US502
