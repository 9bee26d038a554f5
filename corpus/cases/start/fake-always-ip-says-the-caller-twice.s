#! claim: Where the skip already lands on the sampled ip, storing it first gives it twice.
#! source: Linux 83f44ae0f8af (2019), reverted by 6d08340d1e35 (2025): bprm_execve+1767 stood twice
#! group: start
#! regs: fake:always-ip fake:v5.2
#! right: orc@fake:v5.2 dwarf@fake:v5.2
#! wrong: orc@fake:always-ip(US502) dwarf@fake:always-ip(US502)
#@ fetch fake own=in_unwinder: caller < outer < _start
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

PLAIN_CALLER caller, perf_trace_event
PLAIN_CALLER outer, caller
PLAIN_ROOT outer

#= sample            dwarf@fake:always-ip dwarf@fake:v5.2 sframe@fake:always-ip sframe@fake:v5.2
#= fetch/in_unwinder x1@1/US502           .               x1@1/US502            .
#= sample            orc@fake:always-ip orc@fake:v5.2 fp@fake:always-ip fp@fake:v5.2
#= fetch/in_unwinder x1@1/US502         .             w@1/US512         t@1/US512
#= sample            guess@fake:always-ip guess@fake:v5.2
#= fetch/in_unwinder x2@1/US502           x1@3/US502
