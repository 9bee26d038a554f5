//! Signals on the normal stack and on another.

use super::*;

#[test]
fn a_signal_makes_two_frames_and_sigreturn_ends_them() {
    for frame in [STACK - 0x400, OTHER] {
        let mut m = Machine::new();
        let outer = m.call(F);
        m.add_sp(-0x10);

        let interrupted = m.cpu;
        m.signal(G, frame);
        assert_eq!(m.callers(), [RESTORER, interrupted.rip, outer]);

        let truth = m.tracker.truth(&m.cpu);
        let kinds: Vec<TrueKind> = truth.frames().iter().map(|f| f.kind).collect();
        let want = [
            TrueKind::Top,
            TrueKind::Call,
            TrueKind::Interrupted,
            TrueKind::Call,
        ];
        assert_eq!(kinds, want);

        // The handler's frame ends at the interrupted rsp, and rip is 176 bytes above its return
        // address.
        assert_eq!(truth.frames()[1].cfa, interrupted.rsp);
        assert_eq!(
            (truth.slot(1), truth.slot(2)),
            (Some(frame), Some(frame + 176))
        );

        // The interrupted stack goes on from where rsp was.
        let others: Vec<u64> = m.tracker.other_stacks().collect();
        assert_eq!(others, [interrupted.rsp]);

        // The handler may call like any function, and then returns to the restorer.
        m.call(FAR);
        m.ret();
        m.ret();
        assert_eq!(
            (m.cpu.rip, m.callers()),
            (RESTORER, vec![interrupted.rip, outer])
        );

        m.sigreturn(&interrupted);
        assert_eq!(m.callers(), [outer]);
        assert_eq!(m.tracker.other_stacks().count(), 0);
        m.add_sp(0x10);
        m.ret();

        let stats = m.stats();
        assert_eq!((stats.signals, stats.redirected, stats.returns), (1, 0, 3));
        assert_eq!((stats.failures(), stats.dropped), (0, 0));
    }
}

#[test]
fn a_handler_may_change_where_it_returns_to() {
    let mut m = Machine::new();
    let outer = m.call(F);
    let mut to = m.cpu;
    m.signal(G, m.cpu.rsp - 0x400);
    m.ret();
    to.rip += 2;
    m.sigreturn(&to);
    assert_eq!((m.callers(), m.stats().redirected), (vec![outer], 1));
}

#[test]
fn a_handlers_frame_returns_to_the_saved_rip_that_it_wrote() {
    let mut m = Machine::new();
    let outer = m.call(F);
    let mut to = m.cpu;
    m.signal(G, m.cpu.rsp - 0x400);
    let slot = m.tracker.frames()[1].slot;
    to.rip += 2;
    m.tracker.redirect(slot + 8, FAR);
    m.tracker.redirect(slot, to.rip);
    assert_eq!(m.callers(), [RESTORER, to.rip, outer]);
    m.ret();
    m.sigreturn(&to);
    assert_eq!((m.callers(), m.stats().redirected), (vec![outer], 1));
}

#[test]
fn a_handler_may_make_the_interrupted_function_call_another() {
    let mut m = Machine::new();
    let outer = m.call(F);
    m.add_sp(-0x10);
    let interrupted = m.cpu;
    m.signal(G, OTHER);
    m.ret();
    let mut to = interrupted;
    to.rip = FAR;
    to.rsp -= 8;
    m.words.0.insert(to.rsp, interrupted.rip);
    m.sigreturn(&to);
    assert_eq!(m.callers(), [interrupted.rip, outer]);
    m.ret();
    assert_eq!(m.cpu.rip, interrupted.rip);
    assert_eq!((m.callers(), m.stats().failures()), (vec![outer], 0));
}

#[test]
fn another_system_call_in_the_restorer_ends_nothing() {
    let mut m = Machine::new();
    let interrupted = m.cpu.rip;
    m.signal(G, OTHER);
    m.ret();
    m.step_rax(Insn::Syscall, SYS_RT_SIGRETURN + 1, RESTORER + 9, m.cpu.rsp);
    assert_eq!(m.callers(), [interrupted]);
}

#[test]
fn a_handler_may_go_on_with_another_stack() {
    let mut m = Machine::new();
    let interrupted = m.cpu;
    m.signal(G, OTHER);
    m.ret();
    let to = Cpu {
        rip: FAR,
        rsp: HIGHER,
        ..interrupted
    };
    m.sigreturn(&to);
    let others: Vec<u64> = m.tracker.other_stacks().collect();
    assert_eq!((others, m.stats().redirected), (vec![interrupted.rsp], 1));
}

#[test]
fn a_sigreturn_frame_without_a_signal_ends_no_handler() {
    let mut m = Machine::new();
    let interrupted = m.cpu;
    m.signal(G, OTHER);
    m.add_sp(-0x800);
    let to = Cpu {
        rip: FAR,
        ..interrupted
    };
    m.sigreturn(&to);
    assert_eq!((m.callers(), m.stats().redirected), (vec![], 0));
}

#[test]
fn siglongjmp_leaves_a_handler_on_either_stack() {
    for frame in [STACK - 0x800, OTHER] {
        let mut m = Machine::new();
        let outer = m.call(F);
        m.add_sp(-0x20);
        let at_setjmp = m.cpu.rsp;
        m.call(G);
        m.signal(G, frame);
        m.call(FAR);
        m.load_sp(at_setjmp);
        m.jump(F + 0x10);
        assert_eq!(
            (m.callers(), m.suspended.len()),
            (vec![outer], 0),
            "{frame:x}"
        );
        m.add_sp(0x20);
        m.ret();
        assert_eq!((m.callers(), m.stats().failures()), (vec![], 0));
        // FAR, the restorer, the interrupted G, and G itself.
        assert_eq!(m.stats().dropped, 4);
    }
}

#[test]
fn nested_signals_end_in_turn() {
    let mut m = Machine::new();
    let first = m.cpu;
    m.signal(F, STACK - 0x400);
    let second = m.cpu;
    m.signal(G, OTHER);
    assert_eq!(m.callers(), [RESTORER, second.rip, RESTORER, first.rip]);
    m.ret();
    m.sigreturn(&second);
    assert_eq!(m.callers(), [RESTORER, first.rip]);
    m.ret();
    m.sigreturn(&first);
    assert_eq!((m.callers(), m.stats().failures()), (vec![], 0));
}
