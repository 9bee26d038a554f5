//! Calls, returns, jumps, and what drops frames without a return.

use super::*;

#[test]
fn a_call_and_its_return() {
    let mut m = Machine::new();
    m.cpu.saved = [9; 6];
    let back = m.call(F);

    let truth = m.tracker.truth(&m.cpu);
    let [top, root] = truth.frames() else {
        panic!("{truth:?}");
    };
    assert_eq!((top.pc, top.cfa, top.kind), (F, STACK, TrueKind::Top));
    assert_eq!(
        (root.pc, root.cfa, root.kind),
        (back, STACK, TrueKind::Call)
    );
    assert_eq!((top.saved, root.saved), (Some([9; 6]), Some([9; 6])));
    assert_eq!((truth.slot(0), truth.slot(1)), (None, Some(STACK - 8)));

    let [held] = m.tracker.frames() else {
        panic!();
    };
    assert_eq!((held.slot, held.cfa, held.pc), (STACK - 8, STACK, back));

    // The return ends the frame, and is counted.
    m.ret();
    assert_eq!(m.callers(), []);
    let want = Stats {
        instructions: 2,
        calls: 1,
        returns: 1,
        ..Stats::default()
    };
    assert_eq!(m.stats(), want);
}

#[test]
fn pushes_and_pops_within_a_frame_change_nothing() {
    let mut m = Machine::new();
    let back = m.call(F);
    m.push(1);
    m.add_sp(-64);
    m.load_sp(m.cpu.rsp + 64);
    m.add_sp(8);
    assert_eq!(m.callers(), [back]);
    m.ret();
    assert_eq!((m.stats().dropped, m.stats().failures()), (0, 0));
}

#[test]
fn a_step_is_quick_only_where_no_frame_can_change() {
    let mut m = Machine::new();
    m.call(F);
    let (rsp, count) = (m.cpu.rsp, m.stats().instructions);
    for (insn, rsp) in [
        (Insn::Other, rsp + 8),
        (Insn::Pop, rsp + 8),
        (Insn::Push, rsp - 8),
    ] {
        assert!(!m.tracker.step_quick(insn, rsp), "{insn:?}");
    }
    assert_eq!(m.stats().instructions, count);
    assert!(m.tracker.step_quick(Insn::Other, rsp));
    assert_eq!(m.stats().instructions, count + 1);
}

#[test]
fn a_ret_with_a_count_returns_too() {
    let mut m = Machine::new();
    m.push(1);
    m.push(2);
    let back = m.call(F);
    let target = m.words.0[&m.cpu.rsp];
    m.step(Insn::Ret, target, m.cpu.rsp + 24);
    assert_eq!((m.cpu.rip, m.stats().returns), (back, 1));
}

#[test]
fn popping_a_return_address_ends_its_frame() {
    let mut m = Machine::new();
    let outer = m.call(F);
    let thunk = m.call(F + 5);
    assert_eq!(m.callers(), [thunk, outer]);
    m.add_sp(8);
    assert_eq!(m.callers(), [outer]);
    assert_eq!(m.stats().dropped, 1);
}

#[test]
fn a_popped_return_address_is_kept_in_its_register() {
    let mut m = Machine::new();
    let outer = m.call(F);
    let back = m.call(F + 0x100);
    m.pop();
    assert_eq!(m.callers(), [back, outer]);
    // vfork: the address is pushed again, and the function returns.
    m.push(back);
    m.pop();
    m.push(back);
    m.ret();
    assert_eq!(m.callers(), [outer]);
    // A jump to it is a return.
    let back = m.call(F + 0x100);
    m.pop();
    m.jump(back);
    assert_eq!((m.callers(), m.stats().returns), (vec![outer], 2));
    // In a call from there, it is the return address of the caller's caller.
    let back = m.call(F + 0x100);
    m.pop();
    let inner = m.call(F + 0x200);
    assert_eq!(m.callers(), [inner, back, outer]);
    assert_eq!(m.stats().failures(), 0);
}

#[test]
fn an_unused_popped_return_address_is_dropped() {
    // The function skips its caller.
    let mut m = Machine::new();
    let outer = m.call(F);
    m.call(F + 0x100);
    m.pop();
    m.ret();
    assert_eq!((m.callers(), m.cpu.rip), (Vec::new(), outer));
    // A jump to a landing pad, which was written in place of the return address.
    m.call(F);
    m.store_top(F + 0x40);
    m.pop();
    m.jump(F + 0x40);
    assert_eq!((m.callers(), m.stats().rewritten), (Vec::new(), 1));
    // rsp rises above the caller's return address.
    m.call(F);
    m.call(F + 0x100);
    m.pop();
    m.add_sp(16);
    assert!(m.callers().is_empty());
    assert_eq!(m.stats().failures(), 0);
}

#[test]
fn a_thunk_wants_its_address_and_no_frame() {
    let mut m = Machine::new();
    let outer = m.call(F);
    m.call(F + 5);
    m.pop();
    assert_eq!(m.callers(), [outer]);
}

#[test]
fn a_retpoline_is_a_jump() {
    let mut m = Machine::new();
    let outer = m.call(F);
    m.call(F + 0x10);
    m.store_top(G);
    m.ret();
    assert_eq!((m.cpu.rip, m.callers()), (G, vec![outer]));
    assert_eq!((m.stats().rewritten, m.stats().failures()), (1, 0));
}

#[test]
fn push_and_ret_is_a_jump() {
    let mut m = Machine::new();
    let outer = m.call(F);
    m.push(G);
    m.ret();
    assert_eq!((m.cpu.rip, m.callers()), (G, vec![outer]));
    assert_eq!((m.stats().trampolines, m.stats().failures()), (1, 0));
}

#[test]
fn a_slot_written_unseen_is_a_failure_but_nothing_is_lost() {
    let mut m = Machine::new();
    let outer = m.call(F);
    m.call(G);
    let slot = m.cpu.rsp;
    m.words.0.insert(slot, FAR);
    m.ret();
    assert_eq!((m.stats().mismatched, m.stats().failures()), (1, 1));
    assert_eq!(m.callers(), [outer]);
}

#[test]
fn a_return_from_nowhere_is_doubted_until_a_frame_proves_itself() {
    let mut m = Machine::new();
    m.call(F);
    m.add_sp(-16);
    m.words.0.insert(m.cpu.rsp, G);
    m.ret();
    assert_eq!(m.stats().unheld, 1);
    assert_eq!(m.tracker.truth(&m.cpu), Truth::Unknown);
    assert!(m.tracker.in_doubt());
    m.add_sp(8);
    assert_eq!(m.stats().unknown, 1);
    m.ret();
    assert_eq!((m.stats().unknown, m.stats().returns), (2, 1));
    assert!(!m.tracker.in_doubt());
    assert_eq!(m.callers(), []);
}

#[test]
fn a_root_has_nothing_to_return_to() {
    let mut m = Machine::new();
    m.words.0.insert(STACK, G);
    m.ret();
    assert_eq!(m.stats().unheld, 1);
    // So it was none: from now on the chain is known up to here.
    m.call(F);
    assert_eq!(m.tracker.truth(&m.cpu), Truth::Unknown);
    m.ret();
    let inner = m.call(F);
    let truth = m.tracker.truth(&m.cpu);
    assert!(
        matches!(&truth, Truth::Known(frames) if frames[1].pc == inner),
        "{truth:?}"
    );
    // Unheld, too: a known function in the middle that returns to an address other than its
    // caller's.
    let mut m = Machine::new();
    m.tracker = Tracker::function_entry(&m.cpu, G, STACK + 0x100);
    m.add_sp(-16);
    m.words.0.insert(m.cpu.rsp, F);
    m.ret();
    assert_eq!(m.stats().unheld, 1);
}

#[test]
fn a_truth_that_started_late_is_known_only_to_a_depth() {
    let mut m = Machine::new();
    m.tracker = Tracker::function_entry(&m.cpu, G, STACK + 0x100);
    m.words.0.insert(STACK, G);
    m.call(F);
    let truth = m.tracker.truth(&m.cpu);
    assert!(
        matches!(&truth, Truth::Known(frames) if frames.len() == 3),
        "{truth:?}"
    );
    assert!(!truth.is_complete());
    m.ret();
    m.ret();
    assert_eq!((m.cpu.rip, m.stats().returns), (G, 2));
    m.words.0.insert(m.cpu.rsp, START);
    m.ret();
    assert!(matches!(m.tracker.truth(&m.cpu), Truth::Known(f) if f.len() == 1));
    assert_eq!(m.stats().failures(), 0);
    assert_eq!(Tracker::middle(&m.cpu, STACK).frames(), []);
}

#[test]
fn longjmp_drops_the_frames_between() {
    let mut m = Machine::new();
    let outer = m.call(F);
    m.add_sp(-0x40);
    let at_setjmp = m.cpu.rsp;
    m.call(G);
    m.add_sp(-0x20);
    m.call(G);
    m.load_sp(at_setjmp);
    assert_eq!((m.callers(), m.stats().dropped), (vec![outer], 2));
    m.jump(FAR);
    assert_eq!((m.callers(), m.stats().switches), (vec![outer], 0));
}

#[test]
fn longjmp_over_a_variable_array_is_known_by_where_it_lands() {
    let mut m = Machine::new();
    let outer = m.call(F);
    m.add_sp(-0x10);
    let at_setjmp = m.cpu.rsp;
    m.add_sp(-0x4000);
    m.call(G);
    m.load_sp(at_setjmp);
    assert_eq!(m.callers().len(), 2);
    // mov, call *%rax
    m.words.0.insert(
        FAR - 8,
        u64::from_le_bytes([0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd0]),
    );
    m.jump(FAR);
    assert_eq!((m.callers(), m.stats().switches), (vec![outer], 0));
    m.add_sp(0x10);
    m.ret();
    assert_eq!((m.stats().returns, m.stats().failures()), (1, 0));
}

#[test]
fn an_unwinder_that_writes_its_return_address_is_explained() {
    let mut m = Machine::new();
    m.call(F);
    m.add_sp(-0x10);
    m.call(G);
    let slot = m.cpu.rsp;
    m.add_sp(-0x1000);
    m.call(G);
    // __builtin_eh_return: writes the landing pad to G's slot, loads rsp with the slot, and
    // returns.
    m.words.0.insert(slot, FAR);
    m.load_sp(slot);
    m.ret();
    assert_eq!(
        (m.cpu.rip, m.stats().rewritten, m.stats().failures()),
        (FAR, 1, 0)
    );
    assert_eq!(m.callers().len(), 1);
}

#[test]
fn a_forked_child_goes_on_in_the_same_frames() {
    let mut m = Machine::new();
    m.call(F);
    let child = m.tracker.fork();
    assert_eq!(child.truth(&m.cpu), m.tracker.truth(&m.cpu));
    assert_eq!(*child.stats(), Stats::default());
}

#[test]
fn every_count_is_summed() {
    let times = |n| Stats {
        instructions: n,
        calls: 2 * n,
        returns: 3 * n,
        rewritten: 4 * n,
        trampolines: 5 * n,
        dropped: 6 * n,
        signals: 7 * n,
        redirected: 8 * n,
        switches: 9 * n,
        mismatched: 10 * n,
        unheld: 11 * n,
        unknown: 12 * n,
    };
    assert_eq!(times(10).plus(&times(100)), times(110));
    assert_eq!(times(10).failures(), 100 + 110);
}

#[test]
fn a_popped_return_address_is_not_in_memory() {
    for in_register in [false, true] {
        let held = ShadowFrame {
            slot: 0,
            cfa: 8,
            pc: F,
            saved: [0; 6],
            kind: TrueKind::Call,
            rewritten: false,
            taken: false,
            thunk: false,
            in_register,
            planted: false,
            entry: 0,
        };
        assert_eq!(held.is_in_memory(), !in_register);
    }
}
