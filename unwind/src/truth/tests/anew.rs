//! Stacks on which a coroutine starts where another one was abandoned.

use super::*;

/// A switch function: saves nothing, loads rsp, returns.
fn switch(m: &mut Machine, rsp: u64) -> u64 {
    m.call(FAR);
    let old = m.cpu.rsp;
    m.load_sp(rsp);
    m.ret();
    old
}

/// Starts a coroutine at `OTHER` with these words, lets it call a function and suspends it there.
fn abandoned(words: [u64; 2]) -> (Machine, u64) {
    let mut m = Machine::new();
    m.words.0.insert(OTHER, words[0]);
    m.words.0.insert(OTHER + 8, words[1]);
    let main_sp = switch(&mut m, OTHER);
    m.add_sp(-0x10);
    m.call(G + 0x100);
    switch(&mut m, main_sp);
    (m, main_sp)
}

#[test]
fn a_stack_that_was_abandoned_is_that_of_a_new_coroutine() {
    let (mut m, _) = abandoned([G, 0]);
    m.words.0.insert(OTHER, FAR + 0x200);
    switch(&mut m, OTHER);
    assert_eq!((m.cpu.rip, m.callers()), (FAR + 0x200, vec![]));
    assert_eq!((m.stats().failures(), m.stats().unknown), (0, 0));
}

#[test]
fn a_new_coroutine_has_its_own_registers_at_the_same_return_address() {
    let (mut m, _) = abandoned([G, F]);
    m.words.0.insert(OTHER, G);
    m.cpu.saved = [11, 12, 13, 14, 15, 16];
    switch(&mut m, OTHER);
    assert_eq!(m.callers(), [F]);
    let truth = m.tracker.truth(&m.cpu);
    assert_eq!(truth.frames()[1].saved, Some([11, 12, 13, 14, 15, 16]));
    m.ret();
    assert_eq!((m.callers(), m.stats().failures()), (vec![], 0));
}

#[test]
fn a_coroutine_that_jumps_back_behind_a_call_of_its_root_is_not_new() {
    // `longjmp` to a buffer of the coroutine's first function.
    let (mut m, _) = abandoned([G, F]);
    let target = G + 0x50;
    // call *%rax in front of it.
    let bytes = [0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd0];
    m.words.0.insert(target - 8, u64::from_le_bytes(bytes));
    m.cpu.saved = [11, 12, 13, 14, 15, 16];
    m.call(FAR);
    m.load_sp(OTHER + 8);
    m.jump(target);
    assert_eq!(m.callers(), [F]);
    let truth = m.tracker.truth(&m.cpu);
    assert_eq!(truth.frames()[1].saved, Some([1, 2, 3, 4, 5, 6]));
}

#[test]
fn a_coroutine_that_pushes_its_return_address_and_jumps_has_a_caller() {
    // boost.context: the first instructions are push %rbp; jmp *%rbx.
    let mut m = Machine::new();
    m.words.0.insert(OTHER, G);
    m.words.0.insert(OTHER + 8, 0);
    switch(&mut m, OTHER);
    m.push(FAR + 0x300);
    m.jump(F);
    assert_eq!(m.callers(), [FAR + 0x300]);
    m.ret();
    assert_eq!(m.cpu.rip, FAR + 0x300);
    assert_eq!((m.callers(), m.stats().failures()), (vec![], 0));
}

#[test]
fn a_coroutine_that_pushes_other_data_and_jumps_has_no_caller() {
    let mut m = Machine::new();
    m.words.0.insert(OTHER, G);
    m.words.0.insert(OTHER + 8, 0);
    switch(&mut m, OTHER);
    m.push(7);
    m.jump(F);
    assert_eq!(m.callers(), []);
}

/// Where functions that borrow a stack enter it: a page above where its owner was suspended.
const SHALLOW: u64 = OTHER - 0x100;

/// A scheduler was entered on a stack of its own, and from deep in it a coroutine was started.
fn scheduled() -> (Machine, u64) {
    let mut m = Machine::new();
    m.words.0.insert(OTHER, G);
    m.words.0.insert(OTHER + 8, 0);
    let main_sp = switch(&mut m, OTHER);
    m.add_sp(-0x80);
    m.call(G + 0x100);
    m.add_sp(-0x1000);
    m.call(G + 0x200);
    switch(&mut m, main_sp);
    (m, main_sp)
}

#[test]
fn a_function_that_borrows_a_suspended_stack_keeps_its_callers() {
    // Go's systemstack: loads rsp with the scheduler's, calls, and loads its own again.
    let (mut m, _) = scheduled();
    let outer = m.call(F);
    m.add_sp(-0x18);
    let inner = m.call(FAR + 0x400);
    let sp = m.cpu.rsp;
    for _ in 0..2 {
        m.load_sp(SHALLOW);
        let borrowed = m.call(FAR + 0x500);
        assert_eq!(m.callers(), [borrowed, inner, outer]);
        m.ret();
        m.load_sp(sp);
        assert_eq!(m.callers(), [inner, outer]);
    }
    m.ret();
    m.add_sp(0x18);
    m.ret();
    assert_eq!((m.callers(), m.stats().failures()), (vec![], 0));
}

#[test]
fn a_coroutine_that_left_by_a_borrowed_stack_resumes() {
    // Go's mcall and gogo: the function called on the scheduler's stack never returns, but switches
    // to another coroutine.
    const THIRD: u64 = 0x5555_0000;
    let (mut m, _) = scheduled();
    let outer = m.call(F);
    let inner = m.call(FAR + 0x400);
    let sp = m.cpu.rsp;
    m.load_sp(SHALLOW);
    m.call(FAR + 0x500);
    m.words.0.insert(THIRD, F + 0x100);
    m.words.0.insert(THIRD + 8, 0);
    let scheduler = switch(&mut m, THIRD);
    assert_eq!(m.callers(), []);
    assert!(scheduler < SHALLOW);
    m.load_sp(sp);
    m.jump(FAR + 0x410);
    assert_eq!(m.callers(), [inner, outer]);
    m.ret();
    m.ret();
    assert_eq!((m.callers(), m.stats().failures()), (vec![], 0));
}
