#! claim: In an NMI at every instruction of an interrupt ORC is right with frame pointers.
#! source: Linux 6.12, arch/x86/kernel/unwind_orc.c, unwind_frame.c, unwind_guess.c,
#!    arch/x86/entry/entry_64.S
#! group: kernel
#! right: orc:kernel
#! wrong: fp:kernel(US502 at asm_sysvec_apic_timer_interrupt) guess:kernel(US502 at
#!    hrtimer_interrupt)
#! config: FRAME_POINTER=y
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
#= sample                               orc:kernel fp:kernel  guess:kernel
#= asm_sysvec_apic_timer_interrupt+0x0  .          m1@3/US502 x1@2/US502
#= asm_sysvec_apic_timer_interrupt+0x2  .          m1@3/US502 x1@2/US502
#= asm_sysvec_apic_timer_interrupt+0x3  .          m1@3/US502 x1@2/US502
#= asm_sysvec_apic_timer_interrupt+0x4  .          m1@3/US502 x1@2/US502
#= asm_sysvec_apic_timer_interrupt+0x5  .          m1@3/US502 x1@2/US502
#= asm_sysvec_apic_timer_interrupt+0x6  .          m1@3/US502 x1@2/US502
#= asm_sysvec_apic_timer_interrupt+0x7  .          m1@3/US502 x1@2/US502
#= asm_sysvec_apic_timer_interrupt+0x9  .          m1@3/US502 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0xb  .          m1@3/US502 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0xd  .          m1@3/US502 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0xf  .          m1@3/US502 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x10 .          m1@3/US502 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x11 .          m1@3/US502 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x13 .          m1@3/US502 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x15 .          m1@3/US502 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x17 .          m1@3/US502 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x19 .          m1@3/US502 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x1b .          m1@3/US502 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x1d .          r/US402    x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x22 .          .          x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x25 .          .          x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x2a .          .          x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x2c .          .          x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x2e .          .          x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x30 .          .          x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x32 .          .          x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x33 .          m1@3/US502 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x34 .          m1@3/US502 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x36 .          m1@3/US502 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x38 .          m1@3/US502 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x3a .          m1@3/US502 x2@2/US502
#= asm_sysvec_apic_timer_interrupt+0x3c .          m1@3/US502 x1@2/US502
#= asm_sysvec_apic_timer_interrupt+0x3d .          m1@3/US502 x1@2/US502
#= asm_sysvec_apic_timer_interrupt+0x3e .          m1@3/US502 x1@2/US502
#= asm_sysvec_apic_timer_interrupt+0x3f .          m1@3/US502 x1@2/US502
#= asm_sysvec_apic_timer_interrupt+0x40 .          m1@3/US502 x1@2/US502
#= asm_sysvec_apic_timer_interrupt+0x41 .          m1@3/US502 x1@2/US502
#= asm_sysvec_apic_timer_interrupt+0x45 .          m1@3/US502 x1@2/US502
#= sysvec_apic_timer_interrupt+0x0      .          m1@3/US502 x2@2/US502
#= sysvec_apic_timer_interrupt+0x1      .          m1@3/US502 x2@2/US502
#= sysvec_apic_timer_interrupt+0x4      .          .          x2@2/US502
#= sysvec_apic_timer_interrupt+0x5      .          .          x2@2/US502
#= sysvec_apic_timer_interrupt+0xc      .          .          x2@2/US502
#= sysvec_apic_timer_interrupt+0xf      .          .          x2@2/US502
#= sysvec_apic_timer_interrupt+0x12     .          .          x2@2/US502
#= sysvec_apic_timer_interrupt+0x17     .          .          x2@2/US502
#= sysvec_apic_timer_interrupt+0x18     .          .          x2@2/US502
#= sysvec_apic_timer_interrupt+0x19     .          .          x2@2/US502
#= sysvec_apic_timer_interrupt+0x1a     .          m1@3/US502 x2@2/US502
#= __sysvec_apic_timer_interrupt+0x0    .          m1@3/US502 x2@2/US502
#= __sysvec_apic_timer_interrupt+0x1    .          m1@3/US502 x2@2/US502
#= __sysvec_apic_timer_interrupt+0x4    .          .          x2@2/US502
#= __sysvec_apic_timer_interrupt+0x5    .          .          x2@2/US502
#= __sysvec_apic_timer_interrupt+0x9    .          .          x2@2/US502
#= __sysvec_apic_timer_interrupt+0xe    .          .          x2@2/US502
#= __sysvec_apic_timer_interrupt+0x12   .          .          x2@2/US502
#= __sysvec_apic_timer_interrupt+0x13   .          .          x2@2/US502
#= __sysvec_apic_timer_interrupt+0x14   .          m1@3/US502 x2@2/US502
#= hrtimer_interrupt+0x0                .          m1@3/US502 x2@2/US502
#= hrtimer_interrupt+0x1                .          m1@3/US502 x2@2/US502
#= hrtimer_interrupt+0x4                .          .          x2@2/US502
#= hrtimer_interrupt+0x5                .          .          x2@2/US502
#= hrtimer_interrupt+0x6                .          .          x2@2/US502
#= hrtimer_interrupt+0x7                .          .          x2@2/US502
#= hrtimer_interrupt+0x8                .          m1@3/US502 x2@2/US502
