#! claim: In an NMI at every instruction ORC is right with frame pointers but in a retpoline.
#! source: Linux 6.12, arch/x86/kernel/unwind_orc.c, unwind_frame.c, unwind_guess.c,
#!    arch/x86/entry/entry_64.S
#! group: kernel
#! right: orc:kernel(at do_syscall_64, at __x64_sys_poll, at __x86_indirect_thunk_rax, at
#!    do_sys_poll, at perf_poll, at __pollwait, at __get_free_pages, at __alloc_pages_nodemask, at
#!    perf_trace_mm_page_alloc, at perf_tp_event, at perf_callchain_kernel, at __unwind_start, at
#!    cond_resched, at rcu_note)
#! wrong: orc:kernel(US502 at in_thunk) fp:kernel(US502 at do_sys_poll) guess:kernel(US502 at
#!    do_sys_poll)
#! config: FRAME_POINTER=y
#! machine: kernel
#! nmi: every in in_nmi: exc_nmi < asm_exc_nmi
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
#= entry_SYSCALL_64+0x0                .          r/US402    ~
#= entry_SYSCALL_64+0x3                .          r/US402    ~
#= entry_SYSCALL_64+0xa                .          r/US402    ~
#= entry_SYSCALL_64+0x11               .          r/US402    ~
#= entry_SYSCALL_64+0x13               .          r/US402    ~
#= entry_SYSCALL_64+0x19               .          r/US402    ~
#= entry_SYSCALL_64+0x1b               .          r/US402    ~
#= entry_SYSCALL_64+0x1d               .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0x0  .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0x1  .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0x2  .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0x3  .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0x4  .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0x5  .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0x6  .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0x8  .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0xa  .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0xc  .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0xe  .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0xf  .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0x10 .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0x12 .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0x14 .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0x16 .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0x18 .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0x1a .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0x1c .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0x1f .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0x24 .          r/US402    x2@2/US502
#= entry_SYSCALL_64_after_hwframe+0x26 .          r/US402    x2@2/US502
#= entry_SYSCALL_64_after_hwframe+0x28 .          r/US402    x2@2/US502
#= entry_SYSCALL_64_after_hwframe+0x2a .          r/US402    x2@2/US502
#= entry_SYSCALL_64_after_hwframe+0x2c .          r/US402    x2@2/US502
#= entry_SYSCALL_64_after_hwframe+0x2d .          r/US402    x2@2/US502
#= entry_SYSCALL_64_after_hwframe+0x2e .          r/US402    x2@2/US502
#= entry_SYSCALL_64_after_hwframe+0x30 .          r/US402    x2@2/US502
#= entry_SYSCALL_64_after_hwframe+0x32 .          r/US402    x2@2/US502
#= entry_SYSCALL_64_after_hwframe+0x34 .          r/US402    x2@2/US502
#= entry_SYSCALL_64_after_hwframe+0x36 .          r/US402    x2@2/US502
#= entry_SYSCALL_64_after_hwframe+0x37 .          r/US402    x1@2/US502
#= entry_SYSCALL_64_after_hwframe+0x38 .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0x39 .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0x3a .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0x3d .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0x44 .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0x47 .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0x49 .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0x4a .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0x4b .          r/US402    ~
#= entry_SYSCALL_64_after_hwframe+0x4e .          r/US402    ~
#= do_syscall_64+0x0                   .          r/US402    t@3/US402
#= do_syscall_64+0x1                   .          r/US402    ~
#= do_syscall_64+0x4                   .          .          ~
#= do_syscall_64+0x5                   .          .          ~
#= do_syscall_64+0x6                   .          .          ~
#= do_syscall_64+0xd                   .          .          x1@2/US502
#= do_syscall_64+0x12                  .          .          x2@2/US502
#= do_syscall_64+0x13                  .          .          x2@2/US502
#= do_syscall_64+0x14                  .          .          x2@2/US502
#= do_syscall_64+0x15                  .          r/US402    x2@2/US502
#= __x86_indirect_thunk_rax+0x0        .          m1@3/US502 x1@2/US502
#= in_thunk+0x0                        m1@3/US502 m2@3/US502 x1@2/US502
#= in_thunk+0x4                        w@3/US502  m2@3/US502 x1@2/US502
#= __x64_sys_poll+0x0                  .          m1@3/US502 w@3/US502
#= __x64_sys_poll+0x1                  .          m1@3/US502 x1@2/US502
#= __x64_sys_poll+0x4                  .          .          x1@2/US502
#= __x64_sys_poll+0x5                  .          .          x1@2/US502
#= __x64_sys_poll+0x9                  .          .          x1@2/US502
#= __x64_sys_poll+0xe                  .          .          x2@2/US502
#= __x64_sys_poll+0x12                 .          .          x2@2/US502
#= __x64_sys_poll+0x13                 .          .          x2@2/US502
#= __x64_sys_poll+0x14                 .          m1@3/US502 x2@2/US502
#= do_sys_poll+0x0                     .          m1@3/US502 x1@2/US502
#= do_sys_poll+0x1                     .          m1@3/US502 x1@2/US502
#= do_sys_poll+0x4                     .          .          x1@2/US502
#= do_sys_poll+0x5                     .          .          x1@2/US502
#= do_sys_poll+0x9                     .          .          x1@2/US502
#= do_sys_poll+0xe                     .          .          x2@2/US502
#= do_sys_poll+0x13                    .          .          x2@2/US502
#= do_sys_poll+0x17                    .          .          x2@2/US502
#= do_sys_poll+0x18                    .          .          x2@2/US502
#= do_sys_poll+0x19                    .          m1@3/US502 x2@2/US502
#= cond_resched+0x0                    .          m1@3/US502 x2@2/US502
#= rcu_note+0x0                        .          m1@3/US502 x2@2/US502
#= rcu_note+0x1                        .          m1@3/US502 x2@2/US502
#= perf_poll+0x0                       .          m1@3/US502 x1@2/US502
#= perf_poll+0x1                       .          m1@3/US502 x1@2/US502
#= perf_poll+0x4                       .          .          x1@2/US502
#= perf_poll+0x5                       .          .          x1@2/US502
#= perf_poll+0xa                       .          .          x2@2/US502
#= perf_poll+0xb                       .          .          x2@2/US502
#= perf_poll+0xc                       .          m1@3/US502 x2@2/US502
#= __pollwait+0x0                      .          m1@3/US502 x1@2/US502
#= __pollwait+0x1                      .          m1@3/US502 x1@2/US502
#= __pollwait+0x4                      .          .          x1@2/US502
#= __pollwait+0x5                      .          .          x1@2/US502
#= __pollwait+0x9                      .          .          x1@2/US502
#= __pollwait+0xe                      .          .          x2@2/US502
#= __pollwait+0x12                     .          .          x2@2/US502
#= __pollwait+0x13                     .          .          x2@2/US502
#= __pollwait+0x14                     .          m1@3/US502 x2@2/US502
#= __get_free_pages+0x0                .          m1@3/US502 x1@2/US502
#= __get_free_pages+0x1                .          m1@3/US502 x1@2/US502
#= __get_free_pages+0x4                .          .          x1@2/US502
#= __get_free_pages+0x5                .          .          x1@2/US502
#= __get_free_pages+0x9                .          .          x1@2/US502
#= __get_free_pages+0xe                .          .          x2@2/US502
#= __get_free_pages+0x12               .          .          x2@2/US502
#= __get_free_pages+0x13               .          .          x2@2/US502
#= __get_free_pages+0x14               .          m1@3/US502 x2@2/US502
#= __alloc_pages_nodemask+0x0          .          m1@3/US502 x1@2/US502
#= __alloc_pages_nodemask+0x1          .          m1@3/US502 x1@2/US502
#= __alloc_pages_nodemask+0x4          .          .          x1@2/US502
#= __alloc_pages_nodemask+0x5          .          .          x1@2/US502
#= __alloc_pages_nodemask+0x9          .          .          x1@2/US502
#= __alloc_pages_nodemask+0xe          .          .          x2@2/US502
#= __alloc_pages_nodemask+0x12         .          .          x2@2/US502
#= __alloc_pages_nodemask+0x13         .          .          x2@2/US502
#= __alloc_pages_nodemask+0x14         .          m1@3/US502 x2@2/US502
#= perf_trace_mm_page_alloc+0x0        .          m1@3/US502 x1@2/US502
#= perf_trace_mm_page_alloc+0x1        .          m1@3/US502 x1@2/US502
#= perf_trace_mm_page_alloc+0x4        .          .          x1@2/US502
#= perf_trace_mm_page_alloc+0x5        .          .          x1@2/US502
#= perf_trace_mm_page_alloc+0x9        .          .          x1@2/US502
#= perf_trace_mm_page_alloc+0xe        .          .          x2@2/US502
#= perf_trace_mm_page_alloc+0x12       .          .          x2@2/US502
#= perf_trace_mm_page_alloc+0x13       .          .          x2@2/US502
#= perf_trace_mm_page_alloc+0x14       .          m1@3/US502 x2@2/US502
#= perf_tp_event+0x0                   .          m1@3/US502 x1@2/US502
#= perf_tp_event+0x1                   .          m1@3/US502 x1@2/US502
#= perf_tp_event+0x4                   .          .          x1@2/US502
#= perf_tp_event+0x5                   .          .          x1@2/US502
#= perf_tp_event+0x9                   .          .          x1@2/US502
#= perf_tp_event+0xe                   .          .          x2@2/US502
#= perf_tp_event+0x12                  .          .          x2@2/US502
#= perf_tp_event+0x13                  .          .          x2@2/US502
#= perf_tp_event+0x14                  .          m1@3/US502 x2@2/US502
#= perf_callchain_kernel+0x0           .          m1@3/US502 x1@2/US502
#= perf_callchain_kernel+0x1           .          m1@3/US502 x1@2/US502
#= perf_callchain_kernel+0x4           .          .          x1@2/US502
#= perf_callchain_kernel+0x5           .          .          x1@2/US502
#= perf_callchain_kernel+0x9           .          .          x1@2/US502
#= perf_callchain_kernel+0xe           .          .          x2@2/US502
#= perf_callchain_kernel+0x12          .          .          x2@2/US502
#= perf_callchain_kernel+0x13          .          .          x2@2/US502
#= perf_callchain_kernel+0x14          .          m1@3/US502 x2@2/US502
#= __unwind_start+0x0                  .          m1@3/US502 x1@2/US502
#= __unwind_start+0x1                  .          m1@3/US502 x1@2/US502
#= __unwind_start+0x4                  .          .          x1@2/US502
#= __unwind_start+0x5                  .          .          x1@2/US502
#= __unwind_start+0xc                  .          .          x2@2/US502
#= __unwind_start+0xd                  .          .          x2@2/US502
#= __unwind_start+0xe                  .          .          x2@2/US502
#= __unwind_start+0xf                  .          m1@3/US502 x2@2/US502
