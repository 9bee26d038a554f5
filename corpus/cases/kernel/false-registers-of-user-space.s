#! claim: ORC takes r15 and r14 for the user's ip and cs where a row forgets the pushed registers.
#! source: Linux 6.12, arch/x86/entry/entry_64.S (idtentry_body, the call of error_entry), calling.h
#!    (PUSH_AND_CLEAR_REGS)
#! group: kernel
#! right: fp:kernel
#! wrong: orc:kernel(US606)
#! config: FRAME_POINTER=y
#! covers: US606
#! machine: kernel
#! interrupt: before in_user
#! nmi: before in_user_with_cs
#@ in_interrupt: hrtimer_interrupt < __sysvec_apic_timer_interrupt < sysvec_apic_timer_interrupt <
#@    asm_sysvec_apic_timer_interrupt
#@ in_nmi: exc_nmi < asm_exc_nmi
        .include "prelude.inc"
        .set    FALSE_USER_REGS, 1
        .include "kernel.inc"
#= sample       orc:kernel fp:kernel guess:kernel
#= in_interrupt w@4/US606  .         ~
#= in_nmi       w@2/US606  .         ~
