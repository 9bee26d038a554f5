//! Interrupts in ring 0, which end with `iret`.

use super::*;

impl super::Machine {
    /// Delivers an interrupt with its frame at `frame`; returns the interrupted state.
    fn trap(&mut self, handler: u64, frame: u64) -> Cpu {
        let interrupted = self.cpu;
        self.words.0.insert(frame, interrupted.rip);
        (self.cpu.rip, self.cpu.rsp) = (handler, frame);
        self.tracker.trap(&interrupted, &self.cpu);
        interrupted
    }

    fn iret(&mut self, to: &Cpu) {
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
