#! claim: The caller's ip with the tracepoint's own sp and bp is a state that never was.
#! source: Linux 5.1 arch/x86/include/asm/perf_event.h perf_arch_fetch_caller_regs; LKML, Kairui
#!    Song, April 2019
#! group: start
#! regs: hw fake:v5.1
#! right: orc@hw dwarf@hw
#! wrong: orc@fake:v5.1(US501) dwarf@fake:v5.1(US501)
#@ fetch: perf_trace_event < caller < outer < _start
#@ fetch fake own=in_unwinder: caller < outer < _start
        .include "prelude.inc"

FUNC unwind_start
in_unwinder:
        nop
        ret
ENDFUNC unwind_start

FUNC perf_trace_event                   # has rbp only for __builtin_frame_address(0)
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

PLAIN_CALLER caller, perf_trace_event
PLAIN_CALLER outer, caller
PLAIN_ROOT outer

#= sample            dwarf@hw dwarf@fake:v5.1 sframe@hw sframe@fake:v5.1 orc@hw orc@fake:v5.1
#= fetch             .        -               .         -                .      -
#= fetch/in_unwinder -        t@1/US501       -         t@1/US501        -      t@1/US501
#= sample            fp@hw     fp@fake:v5.1 guess@hw   guess@fake:v5.1
#= fetch             t@2/US512 -            x1@4/US502 -
#= fetch/in_unwinder -         w@1/US512    -          x2@1/US502
