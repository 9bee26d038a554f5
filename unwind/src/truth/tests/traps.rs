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
