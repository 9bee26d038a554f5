#! claim: Where a row finds saved registers beyond the end of every stack, ORC does not read them.
#! source: Linux 6.12, arch/x86/kernel/unwind_orc.c (deref_stack_regs, stack_access_ok)
#! group: kernel
#! wrong: orc:kernel(US603)
#! covers: US603
#! machine: kernel
#! interrupt: before polling
#! memory: 0x3003ff8 = 0x2003ff0 @in_interrupt
#! memory: 0x2003ff8 = asm_sysvec_apic_timer_interrupt+0x25 @in_interrupt
#@ in_interrupt: hrtimer_interrupt < __sysvec_apic_timer_interrupt < sysvec_apic_timer_interrupt <
#@    asm_sysvec_apic_timer_interrupt < do_sys_poll < __x64_sys_poll < do_syscall_64 <
#@    entry_SYSCALL_64_after_hwframe
        .include "prelude.inc"
        .include "kernel.inc"
#= sample       orc:kernel fp:kernel guess:kernel
#= in_interrupt r/US603    t@1/US601 x2@4/US502
