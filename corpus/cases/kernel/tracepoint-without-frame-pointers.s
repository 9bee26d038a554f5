#! claim: From a tracepoint ORC gave one entry before Linux 5.2 and gives eight since.
#! source: linux-kernel mailing list, 18 April 2019, "[RFC PATCH v3] perf/x86: make perf callchain
#!    work without CONFIG_FRAME_POINTER"
#! source: Linux d15d356887e7 (5.2) (perf/x86: Make perf callchains work without
#!    CONFIG_FRAME_POINTER), arch/x86/events/core.c
#! group: kernel
#! right: orc:kernel@fake:v5.2 orc:kernel@fake:v3-2019
#! wrong: orc:kernel@fake:v5.1(US206)
#! regs: fake:v5.1 fake:v3-2019 fake:v5.2 fake:always-ip
#! covers: US604
#! machine: kernel
#@ fetch fake own=unwinding: __alloc_pages_nodemask < __get_free_pages < __pollwait < perf_poll <
#@    do_sys_poll < __x64_sys_poll < do_syscall_64 < entry_SYSCALL_64_after_hwframe
        .include "prelude.inc"
        .include "kernel.inc"
#= sample          orc:kernel@fake:v5.1 orc:kernel@fake:v3-2019 orc:kernel@fake:v5.2
#= fetch/unwinding t@1/US206            .                       .
#= sample          orc:kernel@fake:always-ip fp:kernel@fake:v5.1 fp:kernel@fake:v3-2019
#= fetch/unwinding x1@1/US502                r/US604             t@0/US206
#= sample          fp:kernel@fake:v5.2 fp:kernel@fake:always-ip guess:kernel@fake:v5.1
#= fetch/unwinding t@0/US206           t@1/US206                x1@1/US502
#= sample          guess:kernel@fake:v3-2019 guess:kernel@fake:v5.2 guess:kernel@fake:always-ip
#= fetch/unwinding ~                         ~                      x1@1/US502
