//! Interrupts in ring 0, which end with `iret`.

use super::*;
use crate::pt_regs::{IRET_FRAME_OFFSET, offset_of};
use crate::regs::Reg;

impl super::Machine {
    /// Delivers an interrupt with its frame at `frame`; returns the interrupted state.
    pub(super) fn trap(&mut self, handler: u64, frame: u64) -> Cpu {
        let interrupted = self.cpu;
        self.words.0.insert(frame, interrupted.rip);
        (self.cpu.rip, self.cpu.rsp) = (handler, frame);
        self.tracker.trap(&interrupted, &self.cpu);
        interrupted
    }

    pub(super) fn iret(&mut self, to: &Cpu) {
        let before = self.cpu;
        self.cpu = *to;
        let (suspended, words) = (&mut self.suspended, &mut self.words);
        self.tracker.iret(&before, to, suspended, words);
    }
}

#[test]
fn a_trap_makes_one_frame_and_iret_ends_it() {
    for frame in [STACK - 0x400, OTHER] {
        let mut m = Machine::new();
        let outer = m.call(F);
        let interrupted = m.trap(G, frame);
        let truth = m.tracker.truth(&m.cpu);
        let kinds: Vec<TrueKind> = truth.frames().iter().map(|f| f.kind).collect();
        assert_eq!(kinds, [TrueKind::Top, TrueKind::Trapped, TrueKind::Call]);
        assert_eq!(truth.frames()[0].cfa, interrupted.rsp);
        assert_eq!(m.callers(), [interrupted.rip, outer]);
        m.push(7);
        let inner = m.call(FAR);
        assert_eq!(m.callers(), [inner, interrupted.rip, outer]);
        m.ret();
        m.pop();
        m.iret(&interrupted);
        assert_eq!(m.callers(), [outer]);
        m.ret();
        assert_eq!((m.stats().returns, m.stats().redirected), (2, 0));
        assert_eq!((m.stats().failures(), m.stats().dropped), (0, 0));
    }
}

/// The way back to user space of a kernel with its own page tables (Linux `syscall_return_via_sysret`): what
/// runs on the entry stack then is no coroutine, whose chain might be found on the task's stack later.
#[test]
fn a_kernel_leaves_a_stack_for_good() {
    let mut m = Machine::new();
    m.words.2 = true;
    let outer = m.call(F);
    let sp = m.cpu.rsp;
    m.load_sp(OTHER);
    m.push(1);
    m.step(Insn::JumpIndirect, G + 0x40, m.cpu.rsp);
    assert_eq!((m.suspended.len(), m.callers()), (0, vec![outer]));
    let inner = m.call(FAR);
    assert_eq!(m.callers(), [inner, outer]);
    m.ret();
    m.load_sp(sp);
    m.ret();
    assert_eq!((m.callers(), m.stats().failures()), (vec![], 0));
}

#[test]
fn between_the_load_of_another_stack_and_the_call_there() {
    let mut m = Machine::new();
    let outer = m.call(F);
    let below = m.cpu.rsp;
    m.load_sp(HIGHER);
    let interrupted = m.trap(G, OTHER);
    let nested = m.trap(FAR, OTHER - 0x200);
    assert_eq!(m.callers(), [nested.rip, interrupted.rip, outer]);
    m.iret(&nested);
    m.iret(&interrupted);
    assert_eq!(m.callers(), [outer]);
    let inner = m.call(G);
    assert_eq!(m.callers(), [inner, outer]);
    m.ret();
    m.load_sp(below);
    assert_eq!(m.callers(), [outer]);
    m.ret();
    assert_eq!((m.stats().failures(), m.stats().dropped), (0, 0));
}

#[test]
fn a_handler_may_go_back_elsewhere() {
    let mut m = Machine::new();
    let outer = m.call(F);
    let interrupted = m.trap(G, STACK - 0x400);
    m.iret(&Cpu {
        rip: FAR,
        ..interrupted
    });
    assert_eq!((m.callers(), m.stats().redirected), (vec![outer], 1));
}

#[test]
fn an_iret_ends_the_interrupt_whose_frame_it_took() {
    let mut m = Machine::new();
    let outer = m.call(F);
    let (first, second) = (STACK - 0x400, STACK - 0x600);
    let interrupted = m.trap(G, first);
    m.trap(FAR, second);
    let instructions = m.stats().instructions;
    // The inner handler never returns.
    m.cpu.rsp = first;
    m.iret(&interrupted);
    assert_eq!(m.callers(), [outer]);
    assert_eq!(m.stats().instructions, instructions + 1);
    m.ret();
    assert_eq!(m.callers(), []);
}

/// Entry code may move the frame down, to make room.
#[test]
fn a_moved_frame_is_still_that_of_the_interrupt() {
    let mut m = Machine::new();
    let outer = m.call(F);
    let frame = STACK - 0x400;
    let interrupted = m.trap(G, frame);
    m.cpu.rsp = frame - 48;
    m.iret(&interrupted);
    assert_eq!(m.callers(), [outer]);
    m.ret();
    assert_eq!((m.stats().returns, m.stats().failures()), (1, 0));
    assert_eq!(m.stats().redirected, 0);
}

/// As `int3_emulate_call` of Linux does for a call that is being patched.
#[test]
fn a_handler_may_make_the_interrupted_function_call_another_one() {
    let mut m = Machine::new();
    let outer = m.call(F);
    let interrupted = m.trap(G, STACK - 0x400);
    let (slot, back) = (interrupted.rsp - 8, interrupted.rip + 4);
    m.words.0.insert(slot, back);
    m.iret(&Cpu {
        rip: FAR,
        rsp: slot,
        ..interrupted
    });
    assert_eq!(m.callers(), [back, outer]);
    m.ret();
    assert_eq!((m.cpu.rip, m.callers()), (back, vec![outer]));
    assert_eq!((m.stats().redirected, m.stats().failures()), (1, 0));
}

#[test]
fn a_prepared_thread_returns_to_where_it_begins() {
    let mut m = Machine::new();
    m.words.0.insert(STACK, G);
    m.tracker = Tracker::prepared(&m.cpu, G, STACK + 0x100);
    assert_eq!(m.callers(), [G]);
    let inner = m.call(F);
    assert_eq!(m.callers(), [inner, G]);
    m.ret();
    m.ret();
    assert_eq!((m.cpu.rip, m.callers()), (G, vec![]));
    assert_eq!((m.stats().returns, m.stats().failures()), (2, 0));
}

const CS: u64 = 0x10;
const FLAGS: u64 = 0x2;
const SS: u64 = 0x18;

impl super::Machine {
    /// Delivers an interrupt whose frame is whole.
    fn trap_whole(&mut self, handler: u64, frame: u64) -> Cpu {
        let interrupted = self.trap(handler, frame);
        let words = [CS, FLAGS, interrupted.rsp, SS];
        for (word, at) in words.into_iter().zip((frame + 8..).step_by(8)) {
            self.words.0.insert(at, word);
        }
        interrupted
    }

    /// The handler stores into a saved register.
    fn store_saved(&mut self, address: u64, new: u64) {
        let range = address..address + 8;
        let words: Vec<u64> = self.tracker.trapped_words(&range).collect();
        let old = self.words.0.insert(address, new).unwrap_or(0);
        for word in words {
            self.tracker
                .rewrite_trapped(word, (old, new), &mut self.words);
        }
    }

    /// Copies the frame of `iret` to end at rsp, from `above` bytes above.
    fn copy_frame(&mut self, above: i64) {
        for _ in 0..5 {
            let word = self.words.0[&self.cpu.rsp.wrapping_add_signed(above)];
            self.push(word);
        }
    }
}

/// The offset of a saved register from the saved rip.
fn saved(reg: Reg) -> u64 {
    offset_of(reg).wrapping_sub(IRET_FRAME_OFFSET)
}

/// As for a fault that the kernel's table of exceptions mends.
#[test]
fn the_saved_registers_say_where_interrupted_code_goes_on() {
    for frame in [STACK - 0x400, OTHER] {
        let mut m = Machine::new();
        let outer = m.call(F);
        let interrupted = m.trap_whole(G, frame);
        let inner = m.call(FAR);
        // Something else was in its place before the register was saved.
        let rbx = frame.wrapping_add(saved(Reg::Rbx));
        m.store_saved(rbx, interrupted.saved[0]);
        assert_eq!(m.tracker.frames()[1].saved, interrupted.saved);
        m.store_saved(rbx, 77);
        m.store_saved(frame, F + 0x40);
        let held = m.tracker.frames()[1];
        assert_eq!(
            (held.saved[0], held.saved[1..] == interrupted.saved[1..]),
            (77, true)
        );
        assert_eq!(m.callers(), [inner, F + 0x40, outer]);
        m.ret();
        m.iret(&Cpu {
            rip: F + 0x40,
            ..interrupted
        });
        assert_eq!(m.callers(), [outer]);
        m.ret();
        assert_eq!((m.stats().redirected, m.stats().failures()), (1, 0));
        assert_eq!((m.stats().dropped, m.stats().returns), (0, 2));
    }
}

/// As `int3_emulate_call` of Linux does, for which entry code has moved the frame down.
#[test]
fn a_call_that_a_handler_makes_is_known_before_it_returns() {
    let mut m = Machine::new();
    let outer = m.call(F);
    let frame = m.cpu.rsp - 40;
    let interrupted = m.trap_whole(G, frame);
    m.push(u64::MAX);
    m.copy_frame(40);
    let moved = frame - 48;
    assert_eq!(m.tracker.frames()[1].slot, moved);
    let inner = m.call(FAR);

    // What is behind the stack pointer is not a return address yet.
    let (slot, back) = (interrupted.rsp - 8, interrupted.rip + 4);
    m.store_saved(moved + 24, slot);
    assert_eq!(m.callers(), [inner, interrupted.rip, outer]);
    m.words.0.insert(slot, back);
    m.store_saved(moved, FAR + 0x100);
    assert_eq!(m.callers(), [inner, FAR + 0x100, back, outer]);
    m.ret();
    m.cpu.rsp = moved;
    m.iret(&Cpu {
        rip: FAR + 0x100,
        rsp: slot,
        ..interrupted
    });
    assert_eq!(m.callers(), [back, outer]);
    m.ret();
    m.ret();
    assert_eq!((m.stats().redirected, m.stats().failures()), (1, 0));
    assert_eq!((m.stats().calls, m.stats().returns), (3, 3));
}

/// As `int3_emulate_ret` of Linux does.
#[test]
fn a_return_that_a_handler_makes_ends_the_frame() {
    let mut m = Machine::new();
    let outer = m.call(F);
    let back = m.call(G);
    let frame = m.cpu.rsp - 40;
    let interrupted = m.trap_whole(FAR, frame);
    let inner = m.call(FAR + 0x100);
    m.store_saved(frame + 24, interrupted.rsp + 8);
    m.store_saved(frame, back);
    assert_eq!(m.callers(), [inner, back, outer]);
    m.ret();
    m.iret(&Cpu {
        rip: back,
        rsp: interrupted.rsp + 8,
        ..interrupted
    });
    assert_eq!((m.cpu.rip, m.callers()), (back, vec![outer]));
    m.ret();
    assert_eq!((m.stats().returns, m.stats().failures()), (3, 0));
    assert_eq!((m.stats().dropped, m.stats().redirected), (0, 1));
}

/// As the entry code of an NMI does, in which another one has come.
#[test]
fn a_handler_may_begin_again() {
    let mut m = Machine::new();
    let outer = m.call(F);
    let frame = OTHER;
    let interrupted = m.trap_whole(G, frame);
    m.push(1);
    m.push(0);
    m.add_sp(-40);
    m.copy_frame(88);
    let outermost = m.cpu.rsp;
    m.add_sp(80);
    m.copy_frame(-48);
    let copy = m.cpu.rsp;
    assert_eq!(m.tracker.frames()[1].slot, copy);
    m.add_sp(-40);
    assert_eq!(m.cpu.rsp, outermost);

    let nested = m.trap_whole(G, frame);
    m.words.0.insert(copy, G + 0x10);
    m.words.0.insert(copy + 24, outermost);
    m.iret(&nested);
    m.cpu.rsp = copy;
    m.iret(&Cpu {
        rip: G + 0x10,
        rsp: outermost,
        ..interrupted
    });
    assert_eq!(m.callers(), [interrupted.rip, outer]);
    let inner = m.call(FAR);
    assert_eq!(m.callers(), [inner, interrupted.rip, outer]);
    m.ret();
    m.cpu.rsp = copy;
    m.iret(&interrupted);
    assert_eq!(m.callers(), [outer]);
    m.ret();
    assert_eq!((m.stats().returns, m.stats().failures()), (2, 0));
}
