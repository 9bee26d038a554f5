//! The shadow stack of a small processor that executes given calls, returns, entries, interrupts
//! and switches.

use super::{IretFrame, LeftUserSpace, ObservedState, Shadow, THREAD_SIZE, offset_of};
use crate::insn::Insn;
use crate::kernel::UserBoundary;
use crate::regs::Reg;
use crate::truth::{Cpu, TrueKind, Truth};
use alloc::collections::BTreeMap;
use alloc::{vec, vec::Vec};

mod moves;

/// A task's stack.
const TASK: u64 = 0xffff_c900_0000_0000;
const OTHER: u64 = TASK + 4 * THREAD_SIZE;
/// The processor's interrupt stack.
const IRQ: u64 = 0xffff_c900_1000_0000;
const NMI: u64 = 0xffff_fe00_0001_0000;
const TEXT: u64 = 0xffff_ffff_8100_0000;
const HANDLER: u64 = TEXT + 0x9_0000;
const TRAMPOLINE: u64 = TEXT + 0xa_0000;
const KERNEL_CS: u64 = 0x10;
const USER_CS: u64 = 0x33;
const CALL_LEN: u64 = 5;
/// Where the registers of user space are saved.
const PT_REGS: u64 = TASK + THREAD_SIZE - 0xa8;

struct Machine {
    shadow: Shadow,
    at: ObservedState,
    memory: BTreeMap<u64, u64>,
}

impl Machine {
    /// After an entry from user space, at the top of a task's stack.
    fn new() -> Machine {
        let mut shadow = Shadow::new(vec![TRAMPOLINE]);
        shadow.set_processor(vec![IRQ..IRQ + THREAD_SIZE, NMI..NMI + 0x2000]);
        shadow.root(None);
        let cpu = Cpu {
            rip: TEXT,
            rsp: TASK + THREAD_SIZE - 0xa8,
            saved: [0; 6],
        };
        let at = ObservedState { cpu, cs: KERNEL_CS };
        let memory = BTreeMap::new();
        Machine { shadow, at, memory }
    }

    fn step(&mut self, insn: Insn, change: impl FnOnce(&mut ObservedState)) {
        let before = self.at;
        change(&mut self.at);
        let memory = &self.memory;
        let mut word = |at: u64| memory.get(&at).copied();
        self.shadow.step(insn, &before, &self.at, &mut word);
    }

    fn push_word(&mut self, word: u64) -> u64 {
        let slot = self.at.cpu.rsp - 8;
        self.memory.insert(slot, word);
        slot
    }

    /// Calls `to`; returns the return address.
    fn call(&mut self, to: u64) -> u64 {
        let back = self.at.cpu.rip + CALL_LEN;
        let slot = self.push_word(back);
        let insn = Insn::Call {
            len: CALL_LEN as u8,
            indirect: false,
        };
        self.step(insn, |at| (at.cpu.rip, at.cpu.rsp) = (to, slot));
        back
    }

    fn ret(&mut self) {
        let to = self.memory[&self.at.cpu.rsp];
        self.step(Insn::Ret, |at| {
            (at.cpu.rip, at.cpu.rsp) = (to, at.cpu.rsp + 8);
        });
    }

    fn push(&mut self, word: u64) {
        let slot = self.push_word(word);
        self.step(Insn::Push, |at| at.cpu.rsp = slot);
    }

    fn pop(&mut self) -> u64 {
        let word = self.memory[&self.at.cpu.rsp];
        self.step(Insn::Pop, |at| at.cpu.rsp += 8);
        word
    }

    fn sp(&mut self, insn: Insn, rsp: u64) {
        self.step(insn, |at| at.cpu.rsp = rsp);
    }

    fn jump(&mut self, to: u64) {
        self.step(Insn::JumpIndirect, |at| at.cpu.rip = to);
    }

    /// An interrupt, on this stack or at the top of another; returns what `iret` needs.
    fn interrupt(&mut self, stack_top: Option<u64>) -> ObservedState {
        let left = self.at;
        let slot = stack_top.unwrap_or(left.cpu.rsp & !15) - 40;
        let frame = IretFrame {
            rip: left.cpu.rip,
            cs: left.cs,
            rsp: left.cpu.rsp,
        };
        (self.at.cpu.rip, self.at.cpu.rsp) = (HANDLER, slot);
        self.at.cs = KERNEL_CS;
        self.shadow
            .interrupted(&self.at, slot, frame, Some(PT_REGS));
        left
    }

    fn iret(&mut self, to: ObservedState) {
        self.step(Insn::Far, |at| *at = to);
    }

    fn truth(&self) -> Truth {
        self.shadow.truth(&self.at.cpu)
    }

    /// Checks that the chain is complete and has these callers, innermost first.
    #[track_caller]
    fn expect(&self, callers: &[u64]) {
        let Truth::Complete(frames) = self.truth() else {
            panic!("{:?}", self.truth());
        };
        assert_eq!(frames[0].pc, self.at.cpu.rip);
        let pcs: Vec<u64> = frames[1..].iter().map(|f| f.pc).collect();
        assert_eq!(pcs, callers);
    }

    fn kinds(&self) -> Vec<TrueKind> {
        self.truth().frames().iter().map(|f| f.kind).collect()
    }
}

#[test]
fn calls_and_returns() {
    let mut m = Machine::new();
    let top = m.at.cpu.rsp;
    m.expect(&[]);
    m.step(Insn::Other, |at| at.cpu.saved = [7; 6]);
    let a = m.call(TEXT + 0x100);
    m.sp(Insn::Other, m.at.cpu.rsp - 0x20);
    m.step(Insn::Other, |at| at.cpu.saved = [8; 6]);
    let b = m.call(TEXT + 0x200);
    m.expect(&[b, a]);
    let truth = m.truth();
    // Each frame has its caller's rsp and the caller's registers.
    let cfas: Vec<u64> = truth.frames().iter().map(|f| f.cfa).collect();
    assert_eq!(cfas, [top - 0x28, top, 0]);
    assert_eq!(truth.frames()[1].saved, Some([8; 6]));
    assert_eq!(truth.frames()[2].saved, Some([7; 6]));
    m.ret();
    m.expect(&[a]);
    m.sp(Insn::Other, m.at.cpu.rsp + 0x20);
    m.expect(&[a]);
    m.ret();
    m.expect(&[]);
    assert_eq!(m.at.cpu.rip, a);
}

#[test]
fn entries_from_user_space_are_the_root() {
    let mut m = Machine::new();
    m.call(TEXT + 0x100);

    // Back to user space, whatever is on the stack.
    let user = ObservedState {
        cpu: Cpu {
            rip: 0x40_1000,
            rsp: 0x7fff_0000,
            saved: [0; 6],
        },
        cs: USER_CS,
    };
    m.iret(user);
    m.expect(&[]);

    // A system call: still on the user's stack until the entry code loads its own.
    m.step(Insn::Syscall, |at| (at.cpu.rip, at.cs) = (TEXT, KERNEL_CS));
    m.expect(&[]);
    m.sp(Insn::MoveSp, TASK + THREAD_SIZE);
    // The entry code pushes the user's ss first.
    m.push(0x2b);
    let a = m.call(TEXT + 0x100);
    m.expect(&[a]);

    // A page fault from user space puts the user's frame on the stack; it is not a frame of the
    // kernel.
    m.iret(user);
    m.interrupt(Some(TASK + THREAD_SIZE));
    m.expect(&[]);
}

#[test]
fn an_interrupt_is_a_frame_until_its_iret() {
    let mut m = Machine::new();
    let a = m.call(TEXT + 0x100);
    let left = m.interrupt(None);
    m.expect(&[left.cpu.rip, a]);
    assert_eq!(
        m.kinds(),
        [TrueKind::Top, TrueKind::Trapped, TrueKind::Call]
    );
    let b = m.call(HANDLER + 0x100);
    m.expect(&[b, left.cpu.rip, a]);
    m.ret();
    // Loading the registers from the stack lifts rsp up to the frame, not above it.
    m.expect(&[left.cpu.rip, a]);
    m.iret(left);
    m.expect(&[a]);
    m.ret();
    m.expect(&[]);
}

#[test]
fn an_iret_to_elsewhere_removes_nothing() {
    let mut m = Machine::new();
    let a = m.call(TEXT + 0x100);
    let left = m.interrupt(None);
    // The NMI handler does an iret to itself, so that NMIs can occur again.
    let rip = m.at.cpu.rip + 2;
    m.step(Insn::Far, |at| at.cpu.rip = rip);
    m.expect(&[left.cpu.rip, a]);
}

#[test]
fn an_nmi_within_an_interrupt() {
    let mut m = Machine::new();
    let a = m.call(TEXT + 0x100);
    let left = m.interrupt(None);
    // The handler continues on the interrupt stack and saves the other rsp there.
    let own = m.at.cpu.rsp;
    m.sp(Insn::MoveSp, IRQ + THREAD_SIZE);
    m.push(own);
    let b = m.call(HANDLER + 0x100);
    m.expect(&[b, left.cpu.rip, a]);
    let in_handler = m.interrupt(Some(NMI + 0x1000));
    let c = m.call(HANDLER + 0x200);
    m.expect(&[c, in_handler.cpu.rip, b, left.cpu.rip, a]);
    m.ret();
    m.iret(in_handler);
    m.expect(&[b, left.cpu.rip, a]);
    m.ret();
    m.sp(Insn::MoveSp, own);
    m.expect(&[left.cpu.rip, a]);
    m.iret(left);
    m.expect(&[a]);
}

#[test]
fn the_chain_goes_on_on_the_interrupt_stack_and_back() {
    let mut m = Machine::new();
    let a = m.call(TEXT + 0x100);
    let own = m.at.cpu.rsp;
    m.sp(Insn::MoveSp, IRQ + THREAD_SIZE);
    m.push(own);
    let b = m.call(TEXT + 0x200);
    m.call(TEXT + 0x300);
    m.ret();
    m.expect(&[b, a]);
    // Calls on the processor's stack that never returned end when the stack is left.
    m.sp(Insn::MoveSp, own);
    m.expect(&[a]);
    m.ret();
    m.expect(&[]);
}

#[test]
fn tasks_have_their_own_chains() {
    let mut m = Machine::new();
    let a = m.call(TEXT + 0x100);
    let own = m.at;
    // A stack that was never seen: nothing is known of it except what happens from then on.
    m.sp(Insn::MoveSp, OTHER + 0x2000);
    assert_eq!(m.truth(), Truth::Unknown);
    let x = m.call(TEXT + 0x400);
    let Truth::Known(frames) = m.truth() else {
        panic!("{:?}", m.truth());
    };
    assert_eq!(frames[1].pc, x);
    let other = m.at;
    m.sp(Insn::MoveSp, own.cpu.rsp);
    m.expect(&[a]);
    m.sp(Insn::MoveSp, other.cpu.rsp);
    assert_eq!(m.truth().frames()[1].pc, x);
}

/// If a task ran elsewhere in the meantime, what it did was not observed.
#[test]
fn a_task_that_ran_elsewhere_is_unknown() {
    let switched_back = |change: fn(&mut Machine, u64)| {
        let mut m = Machine::new();
        let a = m.call(TEXT + 0x100);
        m.call(TEXT + 0x200);
        let own = m.at.cpu.rsp;
        // `__switch_to_asm` loads the other task's rsp.
        m.sp(Insn::MoveSp, OTHER + 0x2000);
        change(&mut m, own);
        m.sp(Insn::MoveSp, own);
        (m.truth(), a)
    };

    let (truth, a) = switched_back(|_, _| {});
    assert_eq!(truth.frames()[2].pc, a);
    assert!(truth.is_complete());

    // The same depth, reached in another way.
    let (truth, _) = switched_back(|m, own| {
        m.memory.insert(own + 8, TEXT + 0x777);
    });
    assert_eq!(truth, Truth::Unknown);
    let (truth, _) = switched_back(|m, own| {
        m.memory.remove(&own);
    });
    assert_eq!(truth, Truth::Unknown);

    // A tracer took the address.
    let (truth, a) = switched_back(|m, own| {
        m.memory.insert(own + 8, TRAMPOLINE);
    });
    assert_eq!(truth.frames()[2].pc, a);
}

#[test]
fn a_task_at_another_depth_is_not_known() {
    let mut m = Machine::new();
    m.call(TEXT + 0x100);
    let own = m.at.cpu.rsp;
    m.sp(Insn::MoveSp, OTHER + 0x2000);
    m.sp(Insn::MoveSp, own - 0x40);
    assert_eq!(m.truth(), Truth::Unknown);
}

#[test]
fn lifting_rsp_over_return_addresses_drops_them() {
    let mut m = Machine::new();
    let a = m.call(TEXT + 0x100);
    let kept = m.at.cpu.rsp;
    m.call(TEXT + 0x200);
    m.sp(Insn::Other, m.at.cpu.rsp - 0x30);
    m.call(TEXT + 0x300);
    m.sp(Insn::MoveSp, kept);
    m.expect(&[a]);
}

/// `rewind_stack_and_make_dead` lifts rsp out of handlers. Their frames end only with the task's
/// own, because rsp may be above the frame of an interrupt that has not returned yet.
#[test]
fn lifting_rsp_does_not_end_an_interrupt() {
    let mut m = Machine::new();
    let a = m.call(TEXT + 0x100);
    let left = m.interrupt(None);
    m.call(HANDLER + 0x100);
    m.sp(Insn::MoveSp, m.at.cpu.rsp + 8 + 40);
    m.expect(&[left.cpu.rip, a]);
}

#[test]
fn a_popped_return_address_waits() {
    let mut m = Machine::new();
    let a = m.call(TEXT + 0x100);
    let b = m.call(TEXT + 0x200);

    // Like entry code: pop, change stacks, push, return.
    let word = m.pop();
    m.expect(&[b, a]);
    m.sp(Insn::Other, m.at.cpu.rsp - 0x40);
    m.push(word);
    m.expect(&[b, a]);
    m.ret();
    m.expect(&[a]);

    // A frame whose address was put back is dropped at its new place.
    let mut m = Machine::new();
    let a = m.call(TEXT + 0x100);
    m.call(TEXT + 0x200);
    let word = m.pop();
    m.sp(Insn::Other, m.at.cpu.rsp - 0x40);
    m.push(word);
    m.sp(Insn::Other, m.at.cpu.rsp + 8);
    m.expect(&[a]);

    // Or the code jumps to the popped address.
    let mut m = Machine::new();
    let a = m.call(TEXT + 0x100);
    let word = m.pop();
    m.expect(&[a]);
    m.jump(word);
    m.expect(&[]);
}

#[test]
fn retpolines_and_thunks() {
    let mut m = Machine::new();
    let a = m.call(TEXT + 0x100);
    // A call over an endless loop, whose return address is replaced (a retpoline).
    m.call(TEXT + 0x210);
    let slot = m.at.cpu.rsp;
    m.memory.insert(slot, TEXT + 0x300);
    m.step(Insn::StoreTop, |_| ());
    m.ret();
    m.expect(&[a]);
    assert_eq!(m.at.cpu.rip, TEXT + 0x300);
    // A call to the next instruction, to get its address.
    m.call(TEXT + 0x300 + CALL_LEN);
    m.pop();
    m.expect(&[a]);
}

#[test]
fn a_tracer_returns_instead() {
    let mut m = Machine::new();
    let a = m.call(TEXT + 0x100);
    let b = m.call(TEXT + 0x200);

    m.memory.insert(m.at.cpu.rsp, TRAMPOLINE);
    m.expect(&[b, a]);
    m.ret();
    // In the trampoline, which will go to where the function would have returned.
    m.expect(&[b, a]);

    let c = m.call(TEXT + 0x500);
    m.expect(&[c, b, a]);
    m.ret();

    // The function graph tracer: a call whose return address is replaced by the real one.
    m.call(TRAMPOLINE + 0x40);
    m.memory.insert(m.at.cpu.rsp, b);
    m.step(Insn::StoreTop, |_| ());
    m.ret();
    m.expect(&[a]);

    // kretprobes: a pushed word that is replaced by the real address.
    m.memory.insert(m.at.cpu.rsp, TRAMPOLINE);
    m.ret();
    m.expect(&[a]);
    m.push(TRAMPOLINE);
    m.memory.insert(m.at.cpu.rsp, a);
    m.ret();
    m.expect(&[]);
}

#[test]
fn unobserved_execution_is_unknown() {
    let mut m = Machine::new();
    m.call(TEXT + 0x100);
    m.shadow.lost();
    assert_eq!(m.truth(), Truth::Unknown);
    let left = m.interrupt(None);
    let Truth::Known(frames) = m.truth() else {
        panic!("{:?}", m.truth());
    };
    assert_eq!(frames[1].pc, left.cpu.rip);
}

/// Chains do not grow without bound, whatever is executed.
#[test]
fn chains_are_bounded() {
    let mut m = Machine::new();
    for n in 0..20_000 {
        m.call(TEXT + 0x100 * (n % 7));
        m.at.cpu.rsp = TASK + 0x3000;
    }
    assert!(m.truth().frames().len() <= super::FRAMES_MAX + 1);
}

/// With several processors, another one's stop may come first: the step executed nothing.
#[test]
fn a_step_that_executes_nothing_changes_nothing() {
    let mut m = Machine::new();
    let a = m.call(TEXT + 0x100);
    let b = m.call(TEXT + 0x200);
    let call = Insn::Call {
        len: CALL_LEN as u8,
        indirect: true,
    };
    let all = [Insn::Ret, Insn::Far, Insn::Push, Insn::Pop, call];
    for insn in all.into_iter().chain([Insn::MoveSp, Insn::JumpIndirect]) {
        m.step(insn, |_| ());
        m.expect(&[b, a]);
    }
    // An instruction that did something other than its class says.
    m.step(Insn::Ret, |at| at.cpu.rip += 1);
    m.expect(&[b, a]);
    let word = m.pop();
    m.memory.insert(m.at.cpu.rsp, word);
    m.step(Insn::Push, |at| at.cpu.rip += 1);
    m.push(word);
    m.expect(&[b, a]);
    m.ret();
    m.expect(&[a]);
}

fn system_call(m: &mut Machine) -> UserBoundary {
    let boundary = UserBoundary {
        ip: 0x40_1000,
        sp: 0x7fff_0000,
        pushed_at: None,
    };
    m.shadow
        .root(Some(LeftUserSpace::new(boundary, Some(PT_REGS))));
    boundary
}

fn save(m: &mut Machine, ip: u64, sp: u64) {
    m.memory.insert(PT_REGS + offset_of(Reg::Rip), ip);
    m.memory.insert(PT_REGS + offset_of(Reg::Rsp), sp);
    m.step(Insn::Other, |at| at.cpu.rip += 4);
}

#[test]
fn user_space_is_known_from_the_entry_on() {
    let mut m = Machine::new();
    assert_eq!(m.shadow.boundary(), None);
    let boundary = system_call(&mut m);

    // Registers that an earlier entry left there do not count.
    save(&mut m, 0x40_2000, 0x7fff_1000);
    assert_eq!(m.shadow.boundary(), Some(boundary));
    save(&mut m, boundary.ip, boundary.sp);
    assert_eq!(m.shadow.boundary(), Some(boundary));

    // A signal is delivered, or another program is executed.
    save(&mut m, 0x40_3000, 0x7ffe_0000);
    let changed = UserBoundary {
        ip: 0x40_3000,
        sp: 0x7ffe_0000,
        ..boundary
    };
    assert_eq!(m.shadow.boundary(), Some(changed));

    // Another task has its own, and this task's comes back with it.
    m.call(TEXT + 0x100);
    let own = m.at.cpu.rsp;
    m.sp(Insn::MoveSp, OTHER + 0x2000);
    assert_eq!(m.shadow.boundary(), None);
    m.sp(Insn::MoveSp, own);
    assert_eq!(m.shadow.boundary(), Some(changed));

    m.shadow.lost();
    assert_eq!(m.shadow.boundary(), None);
}

#[test]
fn an_exceptions_frame_is_the_users_registers() {
    let mut m = Machine::new();
    m.at.cs = USER_CS;
    (m.at.cpu.rip, m.at.cpu.rsp) = (0x40_1000, 0x7fff_0000);
    m.interrupt(Some(NMI + 0x2000));
    let boundary = UserBoundary {
        ip: 0x40_1000,
        sp: 0x7fff_0000,
        pushed_at: Some(NMI + 0x2000 - 0xa8),
    };
    assert_eq!(m.shadow.boundary(), Some(boundary));
    // What interrupts the kernel afterwards has nothing to do with user space.
    m.call(TEXT + 0x100);
    m.interrupt(None);
    assert_eq!(m.shadow.boundary(), Some(boundary));
}
