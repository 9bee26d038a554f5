#! claim: A saved sp that leads back to a stack already left ends the walk: none is visited twice.
#! source: Linux 6.12, arch/x86/kernel/dumpstack_64.c (get_stack_info, visit_mask)
#! group: kernel
#! wrong: orc:kernel(US602)
#! covers: US602
#! machine: kernel
#! interrupt: before polling
#! memory: 0x2003ec0 = 0x3003f00 @in_interrupt
#@ in_interrupt: hrtimer_interrupt < __sysvec_apic_timer_interrupt < sysvec_apic_timer_interrupt <
#@    asm_sysvec_apic_timer_interrupt < do_sys_poll < __x64_sys_poll < do_syscall_64 <
#@    entry_SYSCALL_64_after_hwframe
        .include "prelude.inc"
        .include "kernel.inc"
#= sample       orc:kernel fp:kernel guess:kernel
#= in_interrupt r/US602    t@1/US601 x1@4/US502
