#! claim: ORC is right at every instruction of a system call with frame pointers but in a retpoline.
#! source: Linux 6.12, arch/x86/kernel/unwind_orc.c, unwind_frame.c, unwind_guess.c,
#!    arch/x86/entry/entry_64.S
#! group: kernel
#! right: orc:kernel(at do_syscall_64, at __x64_sys_poll, at __x86_indirect_thunk_rax, at
#!    do_sys_poll, at perf_poll, at __pollwait, at __get_free_pages, at __alloc_pages_nodemask, at
#!    perf_trace_mm_page_alloc, at perf_tp_event, at perf_callchain_kernel, at __unwind_start, at
#!    cond_resched, at rcu_note)
#! wrong: orc:kernel(US502 at in_thunk) fp:kernel(US502 at do_sys_poll)
#! config: FRAME_POINTER=y
#! machine: kernel
#@ entry_SYSCALL_64 each: entry_SYSCALL_64
#@ entry_SYSCALL_64_after_hwframe each: entry_SYSCALL_64_after_hwframe
#@ do_syscall_64 each: do_syscall_64 < entry_SYSCALL_64_after_hwframe
#@ __x86_indirect_thunk_rax each: __x86_indirect_thunk_rax < do_syscall_64 <
#@    entry_SYSCALL_64_after_hwframe
#@ in_thunk each: __x86_indirect_thunk_rax*2 < do_syscall_64 < entry_SYSCALL_64_after_hwframe
#@ __x64_sys_poll each: __x64_sys_poll < do_syscall_64 < entry_SYSCALL_64_after_hwframe
#@ do_sys_poll each: do_sys_poll < __x64_sys_poll < do_syscall_64 < entry_SYSCALL_64_after_hwframe
#@ cond_resched each: cond_resched < do_sys_poll < __x64_sys_poll < do_syscall_64 <
#@    entry_SYSCALL_64_after_hwframe
#@ rcu_note each: rcu_note < do_sys_poll < __x64_sys_poll < do_syscall_64 <
#@    entry_SYSCALL_64_after_hwframe
#@ perf_poll each: perf_poll < do_sys_poll < __x64_sys_poll < do_syscall_64 <
#@    entry_SYSCALL_64_after_hwframe
#@ __pollwait each: __pollwait < perf_poll < do_sys_poll < __x64_sys_poll < do_syscall_64 <
#@    entry_SYSCALL_64_after_hwframe
#@ __get_free_pages each: __get_free_pages < __pollwait < perf_poll < do_sys_poll < __x64_sys_poll <
#@    do_syscall_64 < entry_SYSCALL_64_after_hwframe
#@ __alloc_pages_nodemask each: __alloc_pages_nodemask < __get_free_pages < __pollwait < perf_poll <
#@    do_sys_poll < __x64_sys_poll < do_syscall_64 < entry_SYSCALL_64_after_hwframe
#@ perf_trace_mm_page_alloc each: perf_trace_mm_page_alloc < __alloc_pages_nodemask <
#@    __get_free_pages < __pollwait < perf_poll < do_sys_poll < __x64_sys_poll < do_syscall_64 <
#@    entry_SYSCALL_64_after_hwframe
#@ perf_tp_event each: perf_tp_event < perf_trace_mm_page_alloc < __alloc_pages_nodemask <
#@    __get_free_pages < __pollwait < perf_poll < do_sys_poll < __x64_sys_poll < do_syscall_64 <
#@    entry_SYSCALL_64_after_hwframe
#@ perf_callchain_kernel each: perf_callchain_kernel < perf_tp_event < perf_trace_mm_page_alloc <
#@    __alloc_pages_nodemask < __get_free_pages < __pollwait < perf_poll < do_sys_poll <
#@    __x64_sys_poll < do_syscall_64 < entry_SYSCALL_64_after_hwframe
#@ __unwind_start each: __unwind_start < perf_callchain_kernel < perf_tp_event <
#@    perf_trace_mm_page_alloc < __alloc_pages_nodemask < __get_free_pages < __pollwait < perf_poll
#@    < do_sys_poll < __x64_sys_poll < do_syscall_64 < entry_SYSCALL_64_after_hwframe
        .include "prelude.inc"
        .include "kernel.inc"
#= sample                              orc:kernel fp:kernel  guess:kernel
#= entry_SYSCALL_64+0x0                r/US601    t@1/US601  .
#= entry_SYSCALL_64+0x3                r/US601    t@1/US601  .
#= entry_SYSCALL_64+0xa                r/US601    t@1/US601  .
#= entry_SYSCALL_64+0x11               r/US601    t@1/US601  .
#= entry_SYSCALL_64+0x13               .          t@1/US601  .
#= entry_SYSCALL_64+0x19               .          t@1/US601  .
#= entry_SYSCALL_64+0x1b               .          t@1/US601  .
#= entry_SYSCALL_64+0x1d               .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x0  .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x1  .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x2  .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x3  .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x4  .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x5  .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x6  .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x8  .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0xa  .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0xc  .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0xe  .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0xf  .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x10 .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x12 .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x14 .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x16 .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x18 .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x1a .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x1c .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x1f .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x24 .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x26 .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x28 .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x2a .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x2c .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x2d .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x2e .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x30 .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x32 .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x34 .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x36 .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x37 .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x38 .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x39 .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x3a .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x3d .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x44 r/US601    t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x47 .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x49 .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x4a .          t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x4b r/US601    t@1/US601  .
#= entry_SYSCALL_64_after_hwframe+0x4e r/US601    t@1/US601  .
#= do_syscall_64+0x0                   .          t@1/US601  ~
#= do_syscall_64+0x1                   .          t@1/US601  ~
#= do_syscall_64+0x4                   .          .          ~
#= do_syscall_64+0x5                   .          .          ~
#= do_syscall_64+0x6                   .          .          ~
#= do_syscall_64+0xd                   .          .          ~
#= do_syscall_64+0x12                  .          .          ~
#= do_syscall_64+0x13                  .          .          ~
#= do_syscall_64+0x14                  .          .          ~
#= do_syscall_64+0x15                  .          t@1/US601  ~
#= __x86_indirect_thunk_rax+0x0        .          m1@1/US502 ~
#= in_thunk+0x0                        m1@1/US502 m2@1/US502 ~
#= in_thunk+0x4                        w@1/US502  m2@1/US502 w@1/US502
#= __x64_sys_poll+0x0                  .          m1@1/US502 ~
#= __x64_sys_poll+0x1                  .          m1@1/US502 ~
#= __x64_sys_poll+0x4                  .          .          ~
#= __x64_sys_poll+0x5                  .          .          ~
#= __x64_sys_poll+0x9                  .          .          ~
#= __x64_sys_poll+0xe                  .          .          ~
#= __x64_sys_poll+0x12                 .          .          ~
#= __x64_sys_poll+0x13                 .          .          ~
#= __x64_sys_poll+0x14                 .          m1@1/US502 ~
#= do_sys_poll+0x0                     .          m1@1/US502 ~
#= do_sys_poll+0x1                     .          m1@1/US502 ~
#= do_sys_poll+0x4                     .          .          ~
#= do_sys_poll+0x5                     .          .          ~
#= do_sys_poll+0x9                     .          .          ~
#= do_sys_poll+0xe                     .          .          ~
#= do_sys_poll+0x13                    .          .          ~
#= do_sys_poll+0x17                    .          .          ~
#= do_sys_poll+0x18                    .          .          ~
#= do_sys_poll+0x19                    .          m1@1/US502 ~
#= cond_resched+0x0                    .          m1@1/US502 ~
#= rcu_note+0x0                        .          m1@1/US502 ~
#= rcu_note+0x1                        .          m1@1/US502 ~
#= perf_poll+0x0                       .          m1@1/US502 ~
#= perf_poll+0x1                       .          m1@1/US502 ~
#= perf_poll+0x4                       .          .          ~
#= perf_poll+0x5                       .          .          ~
#= perf_poll+0xa                       .          .          ~
#= perf_poll+0xb                       .          .          ~
#= perf_poll+0xc                       .          m1@1/US502 ~
#= __pollwait+0x0                      .          m1@1/US502 ~
#= __pollwait+0x1                      .          m1@1/US502 ~
#= __pollwait+0x4                      .          .          ~
#= __pollwait+0x5                      .          .          ~
#= __pollwait+0x9                      .          .          ~
#= __pollwait+0xe                      .          .          ~
#= __pollwait+0x12                     .          .          ~
#= __pollwait+0x13                     .          .          ~
#= __pollwait+0x14                     .          m1@1/US502 ~
#= __get_free_pages+0x0                .          m1@1/US502 ~
#= __get_free_pages+0x1                .          m1@1/US502 ~
#= __get_free_pages+0x4                .          .          ~
#= __get_free_pages+0x5                .          .          ~
#= __get_free_pages+0x9                .          .          ~
#= __get_free_pages+0xe                .          .          ~
#= __get_free_pages+0x12               .          .          ~
#= __get_free_pages+0x13               .          .          ~
#= __get_free_pages+0x14               .          m1@1/US502 ~
#= __alloc_pages_nodemask+0x0          .          m1@1/US502 ~
#= __alloc_pages_nodemask+0x1          .          m1@1/US502 ~
#= __alloc_pages_nodemask+0x4          .          .          ~
#= __alloc_pages_nodemask+0x5          .          .          ~
#= __alloc_pages_nodemask+0x9          .          .          ~
#= __alloc_pages_nodemask+0xe          .          .          ~
#= __alloc_pages_nodemask+0x12         .          .          ~
#= __alloc_pages_nodemask+0x13         .          .          ~
#= __alloc_pages_nodemask+0x14         .          m1@1/US502 ~
#= perf_trace_mm_page_alloc+0x0        .          m1@1/US502 ~
#= perf_trace_mm_page_alloc+0x1        .          m1@1/US502 ~
#= perf_trace_mm_page_alloc+0x4        .          .          ~
#= perf_trace_mm_page_alloc+0x5        .          .          ~
#= perf_trace_mm_page_alloc+0x9        .          .          ~
#= perf_trace_mm_page_alloc+0xe        .          .          ~
#= perf_trace_mm_page_alloc+0x12       .          .          ~
#= perf_trace_mm_page_alloc+0x13       .          .          ~
#= perf_trace_mm_page_alloc+0x14       .          m1@1/US502 ~
#= perf_tp_event+0x0                   .          m1@1/US502 ~
#= perf_tp_event+0x1                   .          m1@1/US502 ~
#= perf_tp_event+0x4                   .          .          ~
#= perf_tp_event+0x5                   .          .          ~
#= perf_tp_event+0x9                   .          .          ~
#= perf_tp_event+0xe                   .          .          ~
#= perf_tp_event+0x12                  .          .          ~
#= perf_tp_event+0x13                  .          .          ~
#= perf_tp_event+0x14                  .          m1@1/US502 ~
#= perf_callchain_kernel+0x0           .          m1@1/US502 ~
#= perf_callchain_kernel+0x1           .          m1@1/US502 ~
#= perf_callchain_kernel+0x4           .          .          ~
#= perf_callchain_kernel+0x5           .          .          ~
#= perf_callchain_kernel+0x9           .          .          ~
#= perf_callchain_kernel+0xe           .          .          ~
#= perf_callchain_kernel+0x12          .          .          ~
#= perf_callchain_kernel+0x13          .          .          ~
#= perf_callchain_kernel+0x14          .          m1@1/US502 ~
#= __unwind_start+0x0                  .          m1@1/US502 ~
#= __unwind_start+0x1                  .          m1@1/US502 ~
#= __unwind_start+0x4                  .          .          ~
#= __unwind_start+0x5                  .          .          ~
#= __unwind_start+0xc                  .          .          ~
#= __unwind_start+0xd                  .          .          ~
#= __unwind_start+0xe                  .          .          ~
#= __unwind_start+0xf                  .          m1@1/US502 ~
