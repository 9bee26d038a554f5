//! Coroutines, calls on other stacks, stacks that move.

use super::*;

/// A switch function: saves nothing, loads rsp, returns.
fn switch(m: &mut Machine, rsp: u64) -> u64 {
    m.call(FAR);
    let old = m.cpu.rsp;
    m.load_sp(rsp);
    m.ret();
    old
}

#[test]
fn a_coroutine_has_its_own_chain_and_both_continue() {
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
    // The scheduler copies the words of the stack, then switches to the copy.
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
    // Go's morestack: on the scheduler's stack, it calls the function that copies the goroutine's
    // stack.
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
    assert_eq!(m.stats().switches, 1);

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
    // A new stack, not the one that was left.
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

/// A function called by the root switches to a stack in the root's local array.
#[test]
fn a_thunk_is_called_first_on_a_stack_in_a_local_array() {
    let mut m = Machine::new();
    m.add_sp(-0x4000);
    let back = m.call(F);
    m.load_sp(STACK - 0x100);
    m.call(m.cpu.rip + 5);
    m.pop();
    assert_eq!((m.callers(), m.stats().dropped), (vec![back], 1));
}

#[test]
fn a_coroutine_in_a_local_array_has_its_registers_popped_first() {
    let mut m = Machine::new();
    let main = m.call(F);
    let top = m.cpu.rsp - 0x100;
    m.add_sp(-0x4000);
    for (address, word) in [(top, 0), (top + 8, G), (top + 16, 0)] {
        m.words.0.insert(address, word);
    }
    let back = m.call(FAR);
    m.load_sp(top);
    m.pop();
    assert_eq!(m.callers(), [back, main]);
    m.ret();
    assert_eq!((m.cpu.rip, m.callers(), m.suspended.len()), (G, vec![], 1));
    assert_eq!(m.stats().failures(), 0);
}

#[test]
fn a_frame_is_left_past_a_coroutine_in_its_local_array() {
    let mut m = Machine::new();
    let main = m.call(F);
    let array_top = m.cpu.rsp - 0x20;
    m.add_sp(-0x4000);
    m.words.0.insert(array_top, G);
    m.words.0.insert(array_top + 8, 0);
    let main_sp = switch(&mut m, array_top);
    let coroutine_sp = switch(&mut m, main_sp);
    switch(&mut m, coroutine_sp);
    assert_eq!((m.callers(), m.suspended.len()), (vec![], 1));
    switch(&mut m, main_sp);
    // lea -0x18(%rbp), %rsp
    m.load_sp(array_top + 8);
    m.jump(F + 0x40);
    assert_eq!((m.callers(), m.suspended.len()), (vec![main], 1));
    assert_eq!(m.stats().switches, 4);
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
    // The callee adjusts rsp there.
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
fn calls_on_two_other_stacks_continue_the_chain() {
    let mut m = Machine::new();
    let outer = m.call(F);
    let first = m.cpu.rsp;
    m.load_sp(OTHER);
    let inner = m.call(G);
    let second = m.cpu.rsp;
    m.load_sp(HIGHER);
    let innermost = m.call(F);
    assert_eq!(m.callers(), [innermost, inner, outer]);
    let others: Vec<u64> = m.tracker.other_stacks().collect();
    assert_eq!(others, [second, first]);
    m.ret();
    // Popping what was there before does not touch a lower stack.
    m.pop();
    assert_eq!(m.callers(), [inner, outer]);
    m.load_sp(second);
    m.ret();
    m.load_sp(first);
    m.ret();
    assert_eq!((m.stats().returns, m.stats().dropped), (3, 0));
}

#[test]
fn a_coroutine_jumps_far_up_into_its_host() {
    let mut m = Machine::new();
    let outer = m.call(F);
    m.add_sp(-0x20);
    let at_setjmp = m.cpu.rsp;
    m.call(G);
    m.add_sp(-0x1000);
    m.words.0.insert(OTHER, G);
    m.words.0.insert(OTHER + 8, 0);
    switch(&mut m, OTHER);
    m.load_sp(at_setjmp);
    m.jump(F + 0x10);
    assert_eq!((m.callers(), m.suspended.len()), (vec![outer], 1));
}

#[test]
fn a_jump_into_a_coroutine_is_not_one_into_the_suspended_host_of_its_array() {
    let mut m = Machine::new();
    m.call(F);
    let array_top = m.cpu.rsp - 0x100;
    m.add_sp(-0x8000);
    for top in [array_top, OTHER] {
        m.words.0.insert(top, G);
        m.words.0.insert(top + 8, 0);
    }
    let host = switch(&mut m, array_top);
    let inner = m.call(G + 0x100);
    let at_setjmp = m.cpu.rsp;
    m.add_sp(-0x1000);
    switch(&mut m, host);
    switch(&mut m, OTHER);
    m.load_sp(at_setjmp);
    m.jump(FAR);
    assert_eq!((m.callers(), m.suspended.len()), (vec![inner], 2));
}

#[test]
fn a_coroutine_may_start_just_below_the_stack_that_enters_it() {
    let mut m = Machine::new();
    m.words.0.insert(STACK - 0x80, FAR);
    m.words.0.insert(STACK - 0x78, 0);
    m.load_sp(STACK - 0x80);
    m.ret();
    assert_eq!((m.callers(), m.suspended.len()), (vec![], 1));
    assert_eq!((m.stats().switches, m.stats().failures()), (1, 0));
}

#[test]
fn alloca_by_a_load_of_rsp_is_not_a_switch_even_before_a_switch_table() {
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
fn alloca_in_a_recursive_function_is_not_a_return_to_the_stack_above() {
    let mut m = Machine::new();
    let mut backs = Vec::new();
    for function in [F, G, F, G, F] {
        backs.insert(0, m.call(function));
        m.load_sp(m.cpu.rsp - 0x10);
    }
    assert_eq!(m.callers(), backs);
    for _ in 0..5 {
        m.load_sp(m.cpu.rsp + 0x10);
        m.ret();
    }
    let stats = m.stats();
    assert_eq!((stats.returns, stats.dropped, stats.failures()), (5, 0, 0));
}

#[test]
fn a_recursion_is_left_from_alloca_where_it_looks_like_its_own_copy() {
    let mut m = Machine::new();
    for _ in 0..8 {
        m.cpu.rip = F;
        m.call(F);
        m.add_sp(-0x18);
    }
    // Makes room by an offset, so that the distance to the end equals that between two frames.
    m.add_sp(-0x8);
    m.load_sp(m.cpu.rsp - 0x10);
    m.load_sp(m.cpu.rsp + 0x30);
    for _ in 0..7 {
        m.ret();
        m.add_sp(0x18);
    }
    m.ret();
    let stats = m.stats();
    assert_eq!((stats.returns, stats.switches, stats.failures()), (8, 0, 0));
}

#[test]
fn alloca_over_the_remains_of_a_recursion_is_not_a_return_to_a_copy() {
    let mut m = Machine::new();
    m.call(F);
    m.call(G);
    let rsp = m.cpu.rsp;
    let above = m.callers();
    m.load_sp(rsp - 0x10);
    // As left behind by deeper calls: the same return addresses farther down.
    for slot in [rsp, rsp + 8] {
        let word = m.words.0[&slot];
        m.words.0.insert(slot - 0x40, word);
    }
    m.call(FAR);
    let callers = m.callers();
    m.load_sp(rsp - 0x40);
    assert_eq!((m.callers(), m.stats().switches), (callers, 0));
    m.load_sp(rsp - 0x18);
    m.ret();
    assert_eq!((m.callers(), m.stats().failures()), (above, 0));
}

#[test]
fn alloca_is_of_64_kib_at_most_and_within_its_mapping() {
    // In the middle or at the bottom of the stack's mapping.
    let (inside, bottom) = (STACK, STACK >> MAPPING_BITS << MAPPING_BITS);
    for (from, size, switches) in [
        (inside, 0x1_0000, 0),
        (inside, 0x1_0008, 1),
        (bottom, 0x100, 1),
    ] {
        let mut m = Machine::new();
        m.add_sp(from.wrapping_sub(STACK).cast_signed());
        m.load_sp(from - size);
        m.jump(START + 0x80);
        assert_eq!(m.stats().switches, switches, "{from:#x} {size:#x}");
    }
}

#[test]
fn a_switch_table_after_alloca_reaches_less_than_64_kib() {
    for (distance, switches) in [(0xffff, 0), (0x1_0000, 1)] {
        let mut m = Machine::new();
        m.load_sp(STACK - 0x200);
        m.jump(m.cpu.rip + distance);
        assert_eq!(m.stats().switches, switches, "{distance:#x}");
    }
}

#[test]
fn the_oldest_suspended_stack_is_forgotten_first() {
    let mut m = Machine::new();
    assert!(m.suspended.is_empty());
    for index in 0..=stacks::SUSPENDED_MAX as u64 {
        assert_eq!(m.suspended.forgotten(), 0);
        let top = OTHER + index * 0x10_0000;
        m.words.0.insert(top, G);
        m.words.0.insert(top + 8, 0);
        switch(&mut m, top);
    }
    assert_eq!(m.suspended.len(), stacks::SUSPENDED_MAX);
    assert_eq!(m.suspended.forgotten(), 1);
}
