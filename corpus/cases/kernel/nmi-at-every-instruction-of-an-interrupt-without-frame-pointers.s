#! claim: In an NMI at every instruction of an interrupt ORC is right without frame pointers.
#! source: Linux 6.12, arch/x86/kernel/unwind_orc.c, unwind_frame.c, unwind_guess.c,
#!    arch/x86/entry/entry_64.S
#! group: kernel
#! right: orc:kernel
#! wrong: fp:kernel(US601 at asm_sysvec_apic_timer_interrupt) guess:kernel(US502 at
#!    hrtimer_interrupt)
#! machine: kernel
#! interrupt: before polling
#! nmi: every in in_nmi: exc_nmi < asm_exc_nmi
#@ asm_sysvec_apic_timer_interrupt each: asm_sysvec_apic_timer_interrupt < do_sys_poll <
#@    __x64_sys_poll < do_syscall_64 < entry_SYSCALL_64_after_hwframe
#@ sysvec_apic_timer_interrupt each: sysvec_apic_timer_interrupt < asm_sysvec_apic_timer_interrupt <
#@    do_sys_poll < __x64_sys_poll < do_syscall_64 < entry_SYSCALL_64_after_hwframe
#@ __sysvec_apic_timer_interrupt each: __sysvec_apic_timer_interrupt < sysvec_apic_timer_interrupt <
#@    asm_sysvec_apic_timer_interrupt < do_sys_poll < __x64_sys_poll < do_syscall_64 <
#@    entry_SYSCALL_64_after_hwframe
#@ hrtimer_interrupt each: hrtimer_interrupt < __sysvec_apic_timer_interrupt <
#@    sysvec_apic_timer_interrupt < asm_sysvec_apic_timer_interrupt < do_sys_poll < __x64_sys_poll <
#@    do_syscall_64 < entry_SYSCALL_64_after_hwframe
        .include "prelude.inc"
        .include "kernel.inc"
#= sample                               orc:kernel fp:kernel guess:kernel
#= asm_sysvec_apic_timer_interrupt+0x0  .          t@1/US601 x1@2/US502
#= asm_sysvec_apic_timer_interrupt+0x2  .          t@1/US601 x1@2/US502
#= asm_sysvec_apic_timer_interrupt+0x3  .          t@1/US601 x1@2/US502
#= asm_sysvec_apic_timer_interrupt+0x4  .          t@1/US601 x1@2/US502
#= asm_sysvec_apic_timer_interrupt+0x5  .          t@1/US601 x1@2/US502
#= asm_sysvec_apic_timer_interrupt+0x6  .          t@1/US601 x1@2/US502
#= asm_sysvec_apic_timer_interrupt+0x7  .          t@1/US601 x1@2/US502
#= asm_sysvec_apic_timer_interrupt+0x9  .          t@1/US601 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0xb  .          t@1/US601 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0xd  .          t@1/US601 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0xf  .          t@1/US601 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x10 .          t@1/US601 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x11 .          t@1/US601 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x13 .          t@1/US601 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x15 .          t@1/US601 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x17 .          t@1/US601 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x19 .          t@1/US601 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x1b .          t@1/US601 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x1d .          t@1/US601 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x20 .          t@1/US601 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x25 .          t@1/US601 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x27 .          t@1/US601 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x29 .          t@1/US601 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x2b .          t@1/US601 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x2d .          t@1/US601 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x2e .          t@1/US601 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x2f .          t@1/US601 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x31 .          t@1/US601 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x33 .          t@1/US601 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x35 .          t@1/US601 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x37 .          t@1/US601 x1@2/US502
#= asm_sysvec_apic_timer_interrupt+0x38 .          t@1/US601 x1@2/US502
#= asm_sysvec_apic_timer_interrupt+0x39 .          t@1/US601 x1@2/US502
#= asm_sysvec_apic_timer_interrupt+0x3a .          t@1/US601 x1@2/US502
#= asm_sysvec_apic_timer_interrupt+0x3b .          t@1/US601 x1@2/US502
#= asm_sysvec_apic_timer_interrupt+0x3c .          t@1/US601 x1@2/US502
#= asm_sysvec_apic_timer_interrupt+0x40 .          t@1/US601 x1@2/US502
#= sysvec_apic_timer_interrupt+0x0      .          t@1/US601 x2@2/US502
#= sysvec_apic_timer_interrupt+0x1      .          t@1/US601 x2@2/US502
#= sysvec_apic_timer_interrupt+0x8      .          t@1/US601 x2@2/US502
#= sysvec_apic_timer_interrupt+0xb      .          t@1/US601 x2@2/US502
#= sysvec_apic_timer_interrupt+0xe      .          t@1/US601 x2@2/US502
#= sysvec_apic_timer_interrupt+0x13     .          t@1/US601 x2@2/US502
#= sysvec_apic_timer_interrupt+0x14     .          t@1/US601 x2@2/US502
#= sysvec_apic_timer_interrupt+0x15     .          t@1/US601 x2@2/US502
#= __sysvec_apic_timer_interrupt+0x0    .          t@1/US601 x2@2/US502
#= __sysvec_apic_timer_interrupt+0x1    .          t@1/US601 x2@2/US502
#= __sysvec_apic_timer_interrupt+0x5    .          t@1/US601 x2@2/US502
#= __sysvec_apic_timer_interrupt+0xa    .          t@1/US601 x2@2/US502
#= __sysvec_apic_timer_interrupt+0xe    .          t@1/US601 x2@2/US502
#= __sysvec_apic_timer_interrupt+0xf    .          t@1/US601 x2@2/US502
#= hrtimer_interrupt+0x0                .          t@1/US601 x2@2/US502
#= hrtimer_interrupt+0x1                .          t@1/US601 x2@2/US502
#= hrtimer_interrupt+0x2                .          t@1/US601 x2@2/US502
#= hrtimer_interrupt+0x3                .          t@1/US601 x2@2/US502
