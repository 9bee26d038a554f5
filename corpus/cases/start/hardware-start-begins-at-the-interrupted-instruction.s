#! claim: From hardware registers the first entry is the interrupted address, nothing is skipped.
#! source: Linux 5.2 arch/x86/events/core.c perf_callchain_kernel (perf_hw_regs)
#! group: start
#! right: dwarf orc
#@ interrupted: traced < caller < outer < _start
        .include "prelude.inc"

FUNC traced
        sub     $40, %rsp
        .cfi_def_cfa_offset 48
interrupted:
        add     $40, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC traced

PLAIN_CALLER caller, traced
PLAIN_CALLER outer, caller
PLAIN_ROOT outer

#= sample      dwarf sframe orc fp        guess
#= interrupted .     .      .   t@1/US512 x1@4/US502
