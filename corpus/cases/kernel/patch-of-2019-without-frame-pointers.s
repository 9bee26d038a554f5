#! claim: The patch of 2019 walks from real registers, else up to sp, and without sp not at all.
#! source: linux-kernel mailing list, 18 April 2019, "[RFC PATCH v3] perf/x86: make perf callchain
#!    work without CONFIG_FRAME_POINTER"
#! group: kernel
#! right: orc:kernel@hw(at unwinding) orc:kernel@fake:v3-2019(at fetch/unwinding)
#! wrong: orc:kernel@fake:v3-2019(US001 at fetch_without_sp/unwinding)
#! regs: hw fake:v3-2019
#! set: rsp = 0 @unwinding_without_sp
#! set: sampled.rsp = 0 @fetch_without_sp/unwinding
#! covers: US601
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
#= unwinding                  .             -                       t@1/US206
#= unwinding_without_sp       r/US601       -                       r/US604
#= fetch/unwinding            -             .                       -
#= fetch_without_sp/unwinding -             t@0/US001               -
#= sample                     fp:kernel@fake:v3-2019 guess:kernel@hw guess:kernel@fake:v3-2019
#= unwinding                  -                      ~               -
#= unwinding_without_sp       -                      t@1/US601       -
#= fetch/unwinding            t@0/US206              -               ~
#= fetch_without_sp/unwinding r/US604                -               t@0/US601
