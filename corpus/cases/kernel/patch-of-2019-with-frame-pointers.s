#! claim: With frame pointers the patch of 2019 takes all registers for real.
#! source: linux-kernel mailing list, 18 April 2019, "[RFC PATCH v3] perf/x86: make perf callchain
#!    work without CONFIG_FRAME_POINTER"
#! group: kernel
#! right: fp:kernel@hw(at unwinding) fp:kernel@fake:v3-2019
#! regs: hw fake:v3-2019
#! config: FRAME_POINTER=y
#! set: rsp = 0 @unwinding_without_sp
#! set: sampled.rsp = 0 @fetch_without_sp/unwinding
#! machine: kernel
#@ unwinding: __unwind_start < perf_callchain_kernel < perf_tp_event < perf_trace_mm_page_alloc <
#@    __alloc_pages_nodemask < __get_free_pages < __pollwait < perf_poll < do_sys_poll <
#@    __x64_sys_poll < do_syscall_64 < entry_SYSCALL_64_after_hwframe
#@ unwinding_without_sp: __unwind_start < perf_callchain_kernel < perf_tp_event <
#@    perf_trace_mm_page_alloc < __alloc_pages_nodemask < __get_free_pages < __pollwait < perf_poll
#@    < do_sys_poll < __x64_sys_poll < do_syscall_64 < entry_SYSCALL_64_after_hwframe
#@ fetch fake own=unwinding: __alloc_pages_nodemask < __get_free_pages < __pollwait < perf_poll <
#@    do_sys_poll < __x64_sys_poll < do_syscall_64 < entry_SYSCALL_64_after_hwframe
#@ fetch_without_sp fake own=unwinding: __alloc_pages_nodemask < __get_free_pages < __pollwait <
#@    perf_poll < do_sys_poll < __x64_sys_poll < do_syscall_64 < entry_SYSCALL_64_after_hwframe
        .include "prelude.inc"
        .include "kernel.inc"
#= sample                     orc:kernel@hw orc:kernel@fake:v3-2019 fp:kernel@hw
#= unwinding                  .             -                       .
#= unwinding_without_sp       r/US601       -                       t@1/US001
#= fetch/unwinding            -             .                       -
#= fetch_without_sp/unwinding -             .                       -
#= sample                     fp:kernel@fake:v3-2019 guess:kernel@hw guess:kernel@fake:v3-2019
#= unwinding                  -                      ~               -
#= unwinding_without_sp       -                      t@1/US601       -
#= fetch/unwinding            .                      -               x1@1/US502
#= fetch_without_sp/unwinding .                      -               x1@1/US502
