//! The truth of ring 0, from its entry to the way back.

use super::*;
use unwind_sim_emulator::ring0::{Event, Gates, StepResult};
use unwind_sim_emulator::state::reg;
use unwind_sim_emulator::{AddressSpace, Permissions};
use unwind_sim_unwind::truth::TrueKind;

const CODE: u64 = 0x1000;
const SYSCALL: u64 = 0x2000;
const HANDLER: u64 = 0x3000;
const STACK: u64 = 0x10_0000;
const TASK: u64 = 0x11_0000;

/// User code at [`CODE`] makes a system call, which runs `system_call`; both handlers return at
/// once.
fn machine(system_call: &[u8]) -> Ring0 {
    let mut memory = AddressSpace::bare();
    memory.map(CODE..0x20_0000, Permissions::ALL).expect("free");
    for (at, bytes) in [
        (CODE, &[0x0f, 0x05, 0x90, 0xf4][..]), // syscall; nop; hlt
        (SYSCALL, system_call),
        (HANDLER, &[0x48, 0xcf]), // iretq
    ] {
        memory.poke(at, bytes).expect("mapped");
    }
    let mut core = Core::new(memory);
    core.state.rip = CODE;
    core.state.set_gpr(reg::RSP, STACK);
    let gates = Gates {
        syscall: SYSCALL,
        interrupt: HANDLER,
        stack: TASK,
        nmi: HANDLER,
        nmi_stack: TASK,
        ..Gates::default()
    };
    Ring0::new(core, gates)
}

#[test]
fn a_system_call_has_one_frame_until_it_returns() {
    let mut shadow = Ring0Shadow::default();
    let mut ring0 = machine(&[0x48, 0x0f, 0x07]); // sysretq
    assert_eq!(shadow.truth(&ring0), Truth::Unknown);
    assert_eq!(ring0.step(&mut shadow), StepResult::Done);
    assert_eq!(shadow.truth(&ring0).frames().len(), 1);
    let boundary = shadow.boundary().expect("in ring 0");
    assert_eq!(
        (boundary.ip, boundary.sp, boundary.pushed_at),
        (CODE + 2, STACK, None)
    );
    assert_eq!(ring0.step(&mut shadow), StepResult::Done);
    assert_eq!(
        (shadow.truth(&ring0), shadow.boundary()),
        (Truth::Unknown, None)
    );
}

#[test]
fn an_interrupt_puts_a_frame_on_what_it_interrupted() {
    let mut shadow = Ring0Shadow::default();
    let mut ring0 = machine(&[0xfb, 0x50, 0x90, 0x90]); // sti; push %rax; nop
    for _ in 0..3 {
        assert_eq!(ring0.step(&mut shadow), StepResult::Done);
    }
    let before = shadow.truth(&ring0);
    assert_eq!(ring0.deliver(Event::Interrupt, &mut shadow), Ok(true));
    let truth = shadow.truth(&ring0);
    let [top, trapped] = truth.frames() else {
        panic!("{truth:?}");
    };
    assert_eq!((top.pc, top.cfa), (HANDLER, STACK - 8));
    assert_eq!((trapped.pc, trapped.kind), (SYSCALL + 2, TrueKind::Trapped));
    assert_eq!(ring0.step(&mut shadow), StepResult::Done);
    assert_eq!((shadow.truth(&ring0), shadow.unknown()), (before, 0));
}

#[test]
fn out_of_user_mode_an_interrupt_has_one_frame() {
    let mut shadow = Ring0Shadow::default();
    let mut ring0 = machine(&[]);
    assert_eq!(ring0.deliver(Event::Interrupt, &mut shadow), Ok(true));
    assert_eq!(shadow.truth(&ring0).frames().len(), 1);
    let pushed = TASK - 40 - IRET_FRAME_OFFSET;
    assert_eq!(shadow.boundary().and_then(|b| b.pushed_at), Some(pushed));
    assert_eq!(ring0.step(&mut shadow), StepResult::Done);
    assert_eq!(shadow.truth(&ring0), Truth::Unknown);
}
