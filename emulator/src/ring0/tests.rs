//! Entering and leaving ring 0, compared with the manual.

use super::*;
use crate::address_space::{AddressSpace, Permissions};

const CODE: u64 = 0x1000;
const SYSCALL: u64 = 0x2000;
const INTERRUPT: u64 = 0x3000;
const NMI: u64 = 0x4000;
const STACK: u64 = 0x10_0000;
const TASK: u64 = 0x11_0000;
const NMI_STACK: u64 = 0x12_0008;

const IRETQ: &[u8] = &[0x48, 0xcf];

/// User code at [`CODE`] makes a system call, which runs `system_call`; both handlers return at
/// once.
fn machine(system_call: &[u8]) -> Ring0 {
    let mut memory = AddressSpace::bare();
    memory.map(CODE..0x20_0000, Permissions::ALL).expect("free");
    for (at, bytes) in [
        (CODE, &[0x0f, 0x05, 0x90, 0xf4][..]), // syscall; nop; hlt
        (SYSCALL, system_call),
        (INTERRUPT, IRETQ),
        (NMI, IRETQ),
    ] {
        memory.poke(at, bytes).expect("mapped");
    }
    let mut core = Core::new(memory);
    core.state.rip = CODE;
    core.state.set_gpr(reg::RSP, STACK);
    let gates = Gates {
        syscall: SYSCALL,
        flags_cleared: flags::IF | flags::CF,
        interrupt: INTERRUPT,
        stack: TASK,
        nmi: NMI,
        nmi_stack: NMI_STACK,
    };
    Ring0::new(core, gates)
}

fn flag(ring0: &Ring0, flag: u64) -> bool {
    ring0.machine.core.state.rflags() & flag != 0
}

#[test]
fn a_system_call_and_back() {
    // swapgs; swapgs; sysretq
    let mut ring0 = machine(&[0x0f, 0x01, 0xf8, 0x0f, 0x01, 0xf8, 0x48, 0x0f, 0x07]);
    ring0.machine.core.state.set_rflags(flags::CF);
    ring0.machine.core.state.set_gpr(reg::GS, 7);

    assert!(ring0.in_user());
    assert_eq!(ring0.step(&mut ()), StepResult::Done);
    let core = &ring0.machine.core;
    assert_eq!((core.state.rip, ring0.cs()), (SYSCALL, 0x10));
    // `syscall` saves rip in rcx and rflags in r11 (SDM volume 2, SYSCALL).
    assert_eq!(core.state.gpr(reg::RCX), CODE + 2);
    assert_eq!(
        core.state.gpr(reg::R11),
        flags::CF | flags::IF | flags::FIXED
    );

    // The stack is still the user's.
    assert_eq!(core.state.gpr(reg::RSP), STACK);
    assert!(!flag(&ring0, flags::CF) && !flag(&ring0, flags::IF));

    assert_eq!(ring0.step(&mut ()), StepResult::Done);
    assert_eq!(ring0.machine.core.state.gpr(reg::GS), 0);
    assert_eq!(ring0.step(&mut ()), StepResult::Done);
    assert_eq!(ring0.machine.core.state.gpr(reg::GS), 7);

    assert_eq!(ring0.step(&mut ()), StepResult::Done);
    assert_eq!((ring0.machine.core.state.rip, ring0.cs()), (CODE + 2, 0x33));
    assert!(flag(&ring0, flags::CF) && flag(&ring0, flags::IF));
    assert_eq!(
        (ring0.step(&mut ()), ring0.step(&mut ())),
        (StepResult::Done, StepResult::Halted)
    );
}

#[test]
fn an_interrupt_waits_for_the_instruction_behind_sti() {
    let mut ring0 = machine(&[0xfb, 0x90, 0x90, 0xfa, 0x90]); // sti; nop; nop; cli; nop
    let mut taken = Vec::new();
    for _ in 0..6 {
        let at = ring0.machine.core.state.rip;
        if ring0.accepts(Event::Interrupt) {
            taken.push(at);
        }
        let mut other = ring0.clone();
        let accepts = ring0.accepts(Event::Interrupt);
        assert_eq!(other.deliver(Event::Interrupt, &mut ()), Ok(accepts));
        assert_eq!(other.machine.core.state.rip == INTERRUPT, accepts);
        assert_eq!(ring0.step(&mut ()), StepResult::Done);
    }
    assert_eq!(taken, [CODE, SYSCALL + 2, SYSCALL + 3]);
}

#[test]
fn the_frame_of_an_interrupt_lies_below_an_aligned_stack() {
    let mut ring0 = machine(&[0xfb, 0x50, 0x90, 0x90]); // sti; push %rax; nop
    for _ in 0..3 {
        assert_eq!(ring0.step(&mut ()), StepResult::Done);
    }
    let before = ring0.machine.core.state.rflags();
    assert_eq!(ring0.deliver(Event::Interrupt, &mut ()), Ok(true));
    let core = &ring0.machine.core;
    let sp = core.state.gpr(reg::RSP);
    // 8 bytes are skipped above the frame.
    assert_eq!(sp, STACK - 16 - 40);
    let frame: [u64; 5] = words(core, sp).expect("a stack");
    assert_eq!(frame, [SYSCALL + 2, 0x10, before, STACK - 8, 0x18]);
    assert!(!flag(&ring0, flags::IF) && !ring0.accepts(Event::Interrupt));
    assert_eq!(ring0.step(&mut ()), StepResult::Done);
    assert_eq!(ring0.machine.core.state.rflags(), before);
    assert_eq!(ring0.machine.core.state.gpr(reg::RSP), STACK - 8);
}

#[test]
fn out_of_user_mode_an_interrupt_changes_stacks() {
    let mut ring0 = machine(&[]);
    assert_eq!(ring0.deliver(Event::Interrupt, &mut ()), Ok(true));
    assert_eq!(ring0.machine.core.state.gpr(reg::RSP), TASK - 40);
    assert_eq!(
        (ring0.cs(), ring0.machine.core.state.segments[SS]),
        (0x10, 0)
    );
    assert_eq!(ring0.step(&mut ()), StepResult::Done);
    assert_eq!((ring0.machine.core.state.rip, ring0.cs()), (CODE, 0x33));
}

#[test]
fn an_nmi_is_not_interrupted_by_another_one() {
    let mut ring0 = machine(&[0x90]);
    assert_eq!(ring0.step(&mut ()), StepResult::Done);
    // Interrupts are masked here, NMIs are not.
    assert_eq!(ring0.deliver(Event::Interrupt, &mut ()), Ok(false));
    assert_eq!(ring0.deliver(Event::Nmi, &mut ()), Ok(true));
    assert_eq!(ring0.machine.core.state.gpr(reg::RSP), 0x12_0000 - 40);
    assert_eq!(ring0.deliver(Event::Nmi, &mut ()), Ok(false));
    assert_eq!(ring0.step(&mut ()), StepResult::Done);
    assert_eq!(ring0.machine.core.state.rip, SYSCALL);
    assert_eq!(ring0.deliver(Event::Nmi, &mut ()), Ok(true));
}

#[test]
fn what_is_not_there_stops_it() {
    let mut ring0 = machine(IRETQ);
    ring0.machine.core.state.set_gpr(reg::RSP, 0x70_0000);
    assert_eq!(ring0.step(&mut ()), StepResult::Done);
    let StepResult::Stopped(Exit::Exception(Exception::Memory(fault))) = ring0.step(&mut ()) else {
        panic!("it has no stack");
    };
    assert_eq!(fault.address, 0x70_0000);
    let refused = ring0.deliver(Event::Nmi, &mut ()).and_then(|_| {
        ring0.gates.nmi_stack = 0x70_0000;
        ring0.nmi_blocked = false;
        ring0.deliver(Event::Nmi, &mut ())
    });
    assert!(refused.is_err());
}
