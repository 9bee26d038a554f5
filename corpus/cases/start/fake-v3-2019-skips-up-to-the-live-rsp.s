#! claim: The unwinder's own registers and the tracepoint's live rsp as mark give the whole chain.
#! source: LKML, Kairui Song, "perf/x86: make perf callchain work without CONFIG_FRAME_POINTER" v3,
#!    April 2019
#! group: start
#! regs: fake:v3-2019
#! right: orc dwarf
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

PLAIN_CALLER perf_tp_event, unwind_start

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

#= sample            dwarf@fake:v3-2019 sframe@fake:v3-2019 orc@fake:v3-2019 fp@fake:v3-2019
#= fetch/in_unwinder .                  .                   .                t@1/US512
#= sample            guess@fake:v3-2019
#= fetch/in_unwinder x1@3/US502
