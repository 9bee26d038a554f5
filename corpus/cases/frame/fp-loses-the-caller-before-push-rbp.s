#! claim: At a function's first instruction rbp is still the caller's, so the caller is lost.
#! source: psABI 3.2.2 figure 3.3; Linux arch/x86/events/core.c perf_callchain_user (entry fixup)
#! group: frame
#! right: dwarf sframe orc fp(at after_push)
#! wrong: fp(US510 at before_push, US510 at between)
#! covers: US510 US001
#@ before_push: leaf < mid < outer < _start
#@ between: leaf < mid < outer < _start
#@ after_push: leaf < mid < outer < _start
        .include "prelude.inc"

FUNC leaf
before_push:                            # rbp is mid's: mid's return address is outer's
        push    %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset rbp, -16
between:
        mov     %rsp, %rbp
        .cfi_def_cfa_register rbp
after_push:
        nop
        FP_LEAVE
        ret
ENDFUNC leaf

FP_CALLER mid, leaf
FP_CALLER outer, mid
FP_ROOT outer

#= sample      dwarf sframe orc fp         guess
#= before_push .     .      .   m1@1/US510 x1@4/US502
#= between     .     .      .   m1@1/US510 x1@4/US502
#= after_push  .     .      .   .          x1@4/US502
