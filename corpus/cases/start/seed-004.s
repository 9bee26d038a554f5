#! claim: A tracepoint sample of an ORC kernel has one kernel entry when started as in 5.1, eight as
#!    in 5.2.
#! source: LKML, Kairui Song and Josh Poimboeuf, "perf/x86: make perf callchain work without
#!    CONFIG_FRAME_POINTER", April 2019; Linux d15d356887e7
#! group: start
#! regs: hw fake:v5.1 fake:v3-2019 fake:v5.2 fake:always-ip
#! right: orc@hw orc@fake:v3-2019 orc@fake:v5.2 dwarf@hw dwarf@fake:v5.2
#! wrong: orc@fake:v5.1(US501) fp@hw(US512)
#@ at_the_call: __alloc_pages_nodemask < __get_free_pages < __pollwait < perf_poll < do_sys_poll <
#@    __x64_sys_poll < do_syscall_64 < entry_SYSCALL_64_after_hwframe
#@ in_unwinder: __unwind_start < perf_callchain_kernel < get_perf_callchain < perf_callchain <
#@    perf_prepare_sample < perf_event_output_forward < __perf_event_overflow < perf_swevent_event <
#@    perf_tp_event < perf_trace_mm_page_alloc < __alloc_pages_nodemask < __get_free_pages <
#@    __pollwait < perf_poll < do_sys_poll < __x64_sys_poll < do_syscall_64 <
#@    entry_SYSCALL_64_after_hwframe
#@ fetch fake own=in_unwinder: __alloc_pages_nodemask < __get_free_pages < __pollwait < perf_poll <
#@    do_sys_poll < __x64_sys_poll < do_syscall_64 < entry_SYSCALL_64_after_hwframe
        .include "prelude.inc"

# The tracepoint path of an x86-64 kernel without CONFIG_FRAME_POINTER, in the frames that the
# mail shows and with their offsets: kmem:mm_page_alloc below poll(2).

# A function without frame pointer whose call returns to \name + \offset.
        .macro  KERNEL_FRAME name, offset, frame, callee, root=0
        FUNC    \name
        .if     \root
        .cfi_undefined rip
        .endif
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
        sub     $\frame, %rsp
        .cfi_def_cfa_offset 16 + \frame
        jmp     9f
        .org    \name + \offset - 5, 0x90
9:
        .ifc    \name, __alloc_pages_nodemask
at_the_call:
        .endif
        call    \callee
        add     $\frame, %rsp
        .cfi_def_cfa_offset 16
        pop     %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore rbx
        .if     \root
        EXIT0
        .else
        ret
        .endif
        ENDFUNC \name
        .endm

FUNC __unwind_start                     # first_frame is compared here
        sub     $16, %rsp
        .cfi_def_cfa_offset 24
in_unwinder:
        add     $16, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC __unwind_start

KERNEL_FRAME perf_callchain_kernel, 0x4f, 112, __unwind_start
KERNEL_FRAME get_perf_callchain, 0x10a, 64, perf_callchain_kernel
KERNEL_FRAME perf_callchain, 0x3c, 16, get_perf_callchain
KERNEL_FRAME perf_prepare_sample, 0x2b1, 48, perf_callchain
KERNEL_FRAME perf_event_output_forward, 0x56, 240, perf_prepare_sample
KERNEL_FRAME __perf_event_overflow, 0x5a, 32, perf_event_output_forward
KERNEL_FRAME perf_swevent_event, 0x6b, 32, __perf_event_overflow
KERNEL_FRAME perf_tp_event, 0x1c4, 96, perf_swevent_event

# perf_fetch_caller_regs is inlined here; __builtin_frame_address(0) makes gcc build rbp.
FUNC perf_trace_mm_page_alloc
        FP_ENTER
        push    %rbx
        .cfi_offset rbx, -24
        sub     $72, %rsp
fetch:
        nop
        call    perf_tp_event
        mov     -8(%rbp), %rbx
        leave
        .cfi_def_cfa rsp, 8
        .cfi_restore rbp
        .cfi_restore rbx
        ret
ENDFUNC perf_trace_mm_page_alloc

KERNEL_FRAME __alloc_pages_nodemask, 0x22e, 176, perf_trace_mm_page_alloc
KERNEL_FRAME __get_free_pages, 0xd, 16, __alloc_pages_nodemask
KERNEL_FRAME __pollwait, 0x8a, 32, __get_free_pages
KERNEL_FRAME perf_poll, 0x2f, 16, __pollwait
KERNEL_FRAME do_sys_poll, 0x252, 992, perf_poll
KERNEL_FRAME __x64_sys_poll, 0x37, 48, do_sys_poll
KERNEL_FRAME do_syscall_64, 0x5b, 32, __x64_sys_poll
KERNEL_FRAME entry_SYSCALL_64_after_hwframe, 0x44, 160, do_syscall_64, root=1

        .globl  _start
FUNC _start                             # user space: rbp is the user's, and no return address
        ROOT
        jmp     entry_SYSCALL_64_after_hwframe
ENDFUNC _start

#= sample            dwarf@hw dwarf@fake:v5.1 dwarf@fake:v3-2019 dwarf@fake:v5.2
#= at_the_call       .        -               -                  -
#= in_unwinder       .        -               -                  -
#= fetch/in_unwinder -        t@1/US501       .                  .
#= sample            dwarf@fake:always-ip sframe@hw sframe@fake:v5.1 sframe@fake:v3-2019
#= at_the_call       -                    .         -                -
#= in_unwinder       -                    .         -                -
#= fetch/in_unwinder x1@1/US502           -         t@1/US501        .
#= sample            sframe@fake:v5.2 sframe@fake:always-ip orc@hw orc@fake:v5.1 orc@fake:v3-2019
#= at_the_call       -                -                     .      -             -
#= in_unwinder       -                -                     .      -             -
#= fetch/in_unwinder .                x1@1/US502            -      t@1/US501     .
#= sample            orc@fake:v5.2 orc@fake:always-ip fp@hw      fp@fake:v5.1 fp@fake:v3-2019
#= at_the_call       -             -                  t@1/US512  -            -
#= in_unwinder       -             -                  m9@1/US512 -            -
#= fetch/in_unwinder .             x1@1/US502         -          w@1/US512    t@1/US512
#= sample            fp@fake:v5.2 fp@fake:always-ip guess@hw    guess@fake:v5.1 guess@fake:v3-2019
#= at_the_call       -            -                 x1@8/US502  -               -
#= in_unwinder       -            -                 x1@18/US502 -               -
#= fetch/in_unwinder t@1/US512    w@1/US512         -           x2@1/US502      x1@8/US502
#= sample            guess@fake:v5.2 guess@fake:always-ip
#= at_the_call       -               -
#= in_unwinder       -               -
#= fetch/in_unwinder x1@8/US502      x2@1/US502
