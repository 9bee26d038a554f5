#! claim: Fake registers are ip, sp and bp: a row on rbx has nothing to start from.
#! source: Linux 5.1 perf_arch_fetch_caller_regs ("We only need a few of the regs")
#! group: start
#! regs: hw fake:v5.1
#! right: dwarf@hw
#! wrong: dwarf@fake:v5.1(US301)
#! covers: US301
#@ fetch: perf_trace_event < by_rbx < outer < _start
#@ fetch fake own=in_unwinder: by_rbx < outer < _start
        .include "prelude.inc"

FUNC unwind_start
in_unwinder:
        nop
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

FUNC by_rbx
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
        mov     %rsp, %rbx
        .cfi_def_cfa_register rbx
        sub     $32, %rsp
        call    perf_trace_event
        mov     %rbx, %rsp
        .cfi_def_cfa_register rsp
        pop     %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore rbx
        ret
ENDFUNC by_rbx

PLAIN_CALLER outer, by_rbx
PLAIN_ROOT outer

#= sample            dwarf@hw dwarf@fake:v5.1 sframe@hw sframe@fake:v5.1 orc@hw    orc@fake:v5.1
#= fetch             .        -               t@2/US106 -                t@2/US103 -
#= fetch/in_unwinder -        t@1/US301       -         t@1/US301        -         t@1/US103
#= sample            fp@hw     fp@fake:v5.1 guess@hw   guess@fake:v5.1
#= fetch             t@2/US512 -            x1@4/US502 -
#= fetch/in_unwinder -         w@1/US512    -          x2@1/US502
