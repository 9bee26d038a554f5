//! Coroutines, calls on other stacks, stacks that move.

use super::*;

/// Saves nothing, loads rsp, returns.
fn switch(m: &mut Machine, rsp: u64) -> u64 {
    m.call(FAR);
    let old = m.cpu.rsp;
    m.load_sp(rsp);
    m.ret();
    old
}

#[test]
fn a_coroutine_has_a_chain_of_its_own_and_both_go_on() {
    let mut m = Machine::new();
    let main = m.call(F);
    m.words.0.insert(OTHER, G);
    m.words.0.insert(OTHER + 8, 0);
    let main_sp = switch(&mut m, OTHER);
    assert_eq!((m.cpu.rip, m.callers(), m.suspended.len()), (G, vec![], 1));
    let in_coroutine = m.call(G + 0x100);
    let coroutine_sp = switch(&mut m, main_sp);
    assert_eq!((m.callers(), m.suspended.len()), (vec![main], 1));
    let main_sp = switch(&mut m, coroutine_sp);
    assert_eq!(m.callers(), [in_coroutine]);
    m.ret();
    switch(&mut m, main_sp);
    m.ret();
    assert_eq!(m.callers(), []);
    assert_eq!((m.stats().failures(), m.stats().unknown), (0, 0));
    assert_eq!(m.stats().switches, 4);
    assert!(!m.suspended.is_empty());
}

#[test]
fn a_stack_that_was_copied_elsewhere_keeps_its_frames() {
    let mut m = Machine::new();
    let outer = m.call(F);
    m.add_sp(-0x18);
    let inner = m.call(G);
    m.words.0.insert(OTHER, FAR + 0x100);
    m.words.0.insert(OTHER + 8, 0);
    let sp = switch(&mut m, OTHER);
    // The scheduler copies the words of the stack, and goes back to the copy.
    const MOVE: u64 = 0x1234_0000;
    let words: Vec<(u64, u64)> = m.words.0.range(sp..STACK).map(|(&a, &w)| (a, w)).collect();
    for (address, word) in words {
        m.words.0.insert(address + MOVE, word);
        m.words.0.insert(address, 0);
    }
    switch(&mut m, sp + MOVE);
    assert_eq!(m.callers(), [inner, outer]);
    let truth = m.tracker.truth(&m.cpu);
    assert_eq!(truth.slot(2), Some(STACK - 8 + MOVE));
    m.ret();
    m.add_sp(0x18);
    m.ret();
    assert_eq!((m.callers(), m.stats().failures()), (vec![], 0));
}

#[test]
fn a_stack_that_is_copied_by_a_call_on_another_is_returned_to() {
    // Go's morestack: on the scheduler's stack it calls what copies the goroutine's.
    let mut m = Machine::new();
    let outer = m.call(F);
    m.add_sp(-0x18);
    let inner = m.call(G);
    let sp = m.cpu.rsp;
    m.call(FAR);
    m.load_sp(OTHER);
    m.call(FAR + 0x100);
    const MOVE: u64 = 0x1234_0000;
    let words: Vec<(u64, u64)> = m.words.0.range(sp..STACK).map(|(&a, &w)| (a, w)).collect();
    for (address, word) in words {
        m.words.0.insert(address + MOVE, word);
    }
    m.load_sp(sp + MOVE);
    m.jump(G);
    assert_eq!(m.callers(), [inner, outer]);
    assert_eq!(m.tracker.other_stacks().count(), 0);
    m.ret();
    m.add_sp(0x18);
    m.ret();
    assert_eq!((m.callers(), m.stats().failures()), (vec![], 0));
}

#[test]
fn a_planted_return_address_is_a_frame() {
    let mut m = Machine::new();
    m.words.0.insert(OTHER, G);
    m.words.0.insert(OTHER + 8, F);
    switch(&mut m, OTHER);
    assert_eq!(m.callers(), [F]);
    let truth = m.tracker.truth(&m.cpu);
    assert_eq!(
        (truth.frames()[0].cfa, truth.slot(1)),
        (OTHER + 16, Some(OTHER + 8))
    );
    m.ret();
    assert_eq!(
        (m.cpu.rip, m.callers(), m.stats().failures()),
        (F, vec![], 0)
    );
}

#[test]
fn a_suspended_chain_that_memory_contradicts_is_not_believed() {
    let mut m = Machine::new();
    m.words.0.insert(OTHER, G);
    m.words.0.insert(OTHER + 8, 0);
    let main_sp = switch(&mut m, OTHER);
    m.words.0.insert(main_sp, FAR + 0x100);
    m.words.0.insert(main_sp + 8, 0);
    switch(&mut m, main_sp);
    assert_eq!(m.cpu.rip, FAR + 0x100);
    // A stack never seen, not the one that was left.
    assert_eq!((m.callers(), m.stats().failures()), (vec![], 0));
}

#[test]
fn a_coroutine_in_a_local_array_leaves_its_host_suspended() {
    let mut m = Machine::new();
    let main = m.call(F);
    let array_top = m.cpu.rsp - 0x100;
    m.add_sp(-0x4000);
    m.words.0.insert(array_top, G);
    m.words.0.insert(array_top + 8, 0);
    let main_sp = switch(&mut m, array_top);
    assert_eq!((m.cpu.rip, m.callers()), (G, vec![]));
    let inner = m.call(G + 0x100);
    let coroutine_sp = switch(&mut m, main_sp);
    assert_eq!(m.callers(), [main]);
    switch(&mut m, coroutine_sp);
    assert_eq!(m.callers(), [inner]);
    switch(&mut m, main_sp);
    m.add_sp(0x4000);
    m.ret();
    assert_eq!((m.callers(), m.stats().failures()), (vec![], 0));
}

#[test]
fn a_call_on_another_stack_continues_the_chain() {
    let mut m = Machine::new();
    let outer = m.call(F);
    let old = m.cpu.rsp;
    m.load_sp(OTHER);
    assert_eq!(m.callers(), [outer]);
    let back = m.call(G);
    assert_eq!(m.callers(), [back, outer]);
    assert_eq!(m.tracker.other_stacks().collect::<Vec<_>>(), [old]);
    // The callee's own business there.
    m.add_sp(-0x20);
    m.add_sp(0x20);
    m.ret();
    m.load_sp(old);
    assert_eq!(m.callers(), [outer]);
    m.ret();
    assert_eq!((m.callers(), m.stats().failures()), (vec![], 0));
    assert_eq!((m.stats().returns, m.stats().switches), (2, 0));
}

#[test]
fn alloca_by_a_load_of_rsp_is_no_switch_even_before_a_switch_table() {
    let mut m = Machine::new();
    let outer = m.call(F);
    let old = m.cpu.rsp;
    m.load_sp(old - 0x200);
    m.jump(F + 0x80);
    assert_eq!((m.callers(), m.suspended.len()), (vec![outer], 0));
    m.load_sp(m.cpu.rsp - 0x100);
    m.call(G);
    m.ret();
    m.add_sp(0x300);
    assert_eq!(m.callers(), [outer]);
    m.ret();
    assert_eq!((m.callers(), m.stats().failures()), (vec![], 0));
}

#[test]
fn the_oldest_suspended_stack_is_forgotten_first() {
    let mut m = Machine::new();
    for index in 0..=stacks::SUSPENDED_MAX as u64 {
        let top = OTHER + index * 0x10_0000;
        m.words.0.insert(top, G);
        m.words.0.insert(top + 8, 0);
        switch(&mut m, top);
    }
    assert_eq!(m.suspended.len(), stacks::SUSPENDED_MAX);
    assert_eq!(m.suspended.forgotten(), 1);
}
