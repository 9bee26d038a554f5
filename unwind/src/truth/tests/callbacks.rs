//! Frames of one chain that alternate between two stacks, and stacks that are left to other
//! threads.

use super::*;

/// rsp on the other stack.
const LENT: u64 = OTHER + 0x8000;

/// A call on the other stack by the running function: Go's `asmcgocall`. Returns the return address
/// and where the own stack was left.
fn call_there(m: &mut Machine, target: u64, rsp: u64) -> (u64, u64) {
    let own = m.cpu.rsp;
    m.load_sp(rsp);
    (m.call(target), own)
}

/// Calls a function, which calls another on the other stack, which calls back on the first one.
/// Returns the return addresses, innermost first, and where each stack was left.
fn called_back() -> (Machine, [u64; 4], [u64; 2]) {
    let mut m = Machine::new();
    let outer = m.call(F);
    m.add_sp(-0x18);
    let inner = m.call(G);
    let (there, own) = call_there(&mut m, FAR, LENT);
    m.add_sp(-0x40);
    let (back, lent) = call_there(&mut m, FAR + 0x1000, own - 0x28);
    (m, [back, there, inner, outer], [own, lent])
}

fn leave(mut m: Machine, callers: &[u64], [own, lent]: [u64; 2]) {
    m.ret();
    m.load_sp(lent);
    assert_eq!(m.callers(), callers[1..]);
    m.add_sp(0x40);
    m.ret();
    m.load_sp(own);
    assert_eq!(m.callers(), callers[2..]);
    m.ret();
    m.add_sp(0x18);
    m.ret();
    assert_eq!((m.callers(), m.stats().failures()), (vec![], 0));
    assert_eq!(m.stats().unknown, 0);
}

#[test]
fn a_callback_below_the_frames_that_called_it_has_all_callers() {
    let (m, callers, left) = called_back();
    assert_eq!(m.callers(), callers);
    leave(m, &callers, left);
}

#[test]
fn a_callback_calls_on_the_stack_that_called_it() {
    let (mut m, callers, [own, lent]) = called_back();
    m.add_sp(-0x10);
    let (third, callback) = call_there(&mut m, FAR + 0x2000, lent);
    assert_eq!(m.callers()[0], third);
    assert_eq!(m.callers()[1..], callers);
    m.ret();
    m.load_sp(callback);
    assert_eq!(m.callers(), callers);
    m.add_sp(0x10);
    leave(m, &callers, [own, lent]);
}

#[test]
fn a_callback_that_jumps_out_of_the_stack_it_borrowed_is_back() {
    // Go's gogo: from the scheduler's stack, it jumps to where the goroutine left its own.
    let (mut m, callers, [own, lent]) = called_back();
    m.add_sp(-0x10);
    let (_, callback) = call_there(&mut m, FAR + 0x2000, lent);
    m.call(FAR + 0x2100);
    m.load_sp(callback);
    m.jump(FAR + 0x1010);
    assert_eq!(m.callers(), callers);
    m.add_sp(0x10);
    leave(m, &callers, [own, lent]);
}

#[test]
fn a_signal_before_the_call_of_a_callback_changes_nothing() {
    let mut m = Machine::new();
    let outer = m.call(F);
    let (there, own) = call_there(&mut m, FAR, LENT);
    m.load_sp(own - 0x28);
    let interrupted = m.cpu;
    m.signal(G, own - 0x1000);
    m.call(G + 0x100);
    m.ret();
    m.ret();
    m.sigreturn(&interrupted);
    let back = m.call(FAR + 0x1000);
    assert_eq!(m.callers(), [back, there, outer]);
    assert_eq!(m.stats().failures(), 0);
}

#[test]
fn a_stack_is_copied_with_the_frames_of_the_callback_and_of_its_callers() {
    const MOVE: u64 = 0x1234_0000;

    let (mut m, callers, [own, lent]) = called_back();
    // The frame pointer points into the stack that is going to be copied.
    m.cpu.saved[1] = own - 8;
    let inner = m.call(FAR + 0x1100);
    let grown = m.cpu.rsp;
    call_there(&mut m, FAR + 0x2000, lent);

    let words: Vec<(u64, u64)> = m
        .words
        .0
        .range(grown..STACK)
        .map(|(&a, &w)| (a, w))
        .collect();
    for (address, word) in words {
        m.words.0.insert(address + MOVE, word);
        // Only the copy still has the frames.
        m.words.0.insert(address, 0);
    }

    m.load_sp(grown + MOVE);
    m.jump(FAR + 0x1100);
    assert_eq!(m.callers()[0], inner);
    assert_eq!(m.callers()[1..], callers);

    let truth = m.tracker.truth(&m.cpu);
    // The frame pointer of the caller points into the copy.
    assert_eq!(truth.frames()[1].saved.map(|s| s[1]), Some(own - 8 + MOVE));

    m.ret();
    leave(m, &callers, [own + MOVE, lent]);
}

#[test]
fn a_stack_that_a_waiting_thread_has_left_is_resumed_by_another() {
    // Go's mcall: the function on the scheduler's stack waits, and the goroutine goes on elsewhere.
    let mut m = Machine::new();
    let outer = m.call(F);
    m.add_sp(-0x18);
    let inner = m.call(G);
    let (there, own) = call_there(&mut m, FAR, LENT);
    let (waiting, cpu) = (m.tracker.clone(), m.cpu);

    // The first thread sleeps, another one comes to its stack.
    m.tracker.rest(&mut m.suspended);
    let mut first = core::mem::replace(&mut m.tracker, waiting);
    m.cpu.rsp = HIGHER;
    m.tracker = Tracker::root(&m.cpu, HIGHER + 0x100);
    m.call(FAR + 0x3000);
    m.load_sp(own);
    m.jump(G + 0x10);
    assert_eq!(m.callers(), [inner, outer]);
    m.ret();
    m.add_sp(0x18);
    m.ret();
    assert_eq!((m.callers(), m.stats().failures()), (vec![], 0));

    // The first thread wakes, and has only what it did not give away.
    m.tracker.rest(&mut m.suspended);
    first.wake(&mut m.suspended);
    (m.tracker, m.cpu) = (first, cpu);
    assert_eq!(m.callers(), [there]);
}

#[test]
fn a_stack_that_no_other_thread_resumed_is_still_that_of_the_thread() {
    let mut m = Machine::new();
    let outer = m.call(F);
    let (there, own) = call_there(&mut m, FAR, LENT);
    m.tracker.rest(&mut m.suspended);
    assert_eq!(m.suspended.len(), 1);
    m.tracker.wake(&mut m.suspended);
    assert_eq!((m.suspended.len(), m.callers()), (0, vec![there, outer]));
    m.ret();
    m.load_sp(own);
    m.ret();
    assert_eq!((m.callers(), m.stats().failures()), (vec![], 0));
}
