#! claim: Behind an interrupt and before the same instruction an NMI has the interrupted task below it.
#! source: Linux 6.12, arch/x86/entry/entry_64.S (asm_exc_nmi)
#! group: kernel
#! right: orc:kernel
#! machine: kernel
#! interrupt: before polling
#! nmi: before polling
#@ in_interrupt: hrtimer_interrupt < __sysvec_apic_timer_interrupt < sysvec_apic_timer_interrupt <
#@    asm_sysvec_apic_timer_interrupt < do_sys_poll < __x64_sys_poll < do_syscall_64 <
#@    entry_SYSCALL_64_after_hwframe
#@ in_nmi: exc_nmi < asm_exc_nmi < do_sys_poll < __x64_sys_poll < do_syscall_64 <
#@    entry_SYSCALL_64_after_hwframe
        .include "prelude.inc"
        .include "kernel.inc"
#= sample       orc:kernel fp:kernel guess:kernel
#= in_interrupt .          t@1/US601 x1@4/US502
#= in_nmi       .          t@1/US601 x1@2/US502
