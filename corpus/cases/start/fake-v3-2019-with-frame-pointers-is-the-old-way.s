#! claim: In a frame-pointer kernel the third version of the patch takes fake registers as real
#!    ones.
#! source: LKML, Kairui Song, v3, April 2019: valid_unwinding_registers() returns 1 with
#!    CONFIG_FRAME_POINTER
#! group: start
#! regs: fake:v3-2019
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

#= sample            dwarf@fake:v3-2019 sframe@fake:v3-2019 orc@fake:v3-2019 fp@fake:v3-2019
#= fetch/in_unwinder .                  .                   .                .
#= sample            guess@fake:v3-2019
#= fetch/in_unwinder x2@1/US502
