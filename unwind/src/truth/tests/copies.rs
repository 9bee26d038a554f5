//! Stacks of many coroutines that are copied elsewhere while they are suspended.

use super::*;

/// The distance between the stacks of two coroutines.
const SIZE: u64 = 0x800;

/// A switch function: saves nothing, loads rsp, returns.
fn switch(m: &mut Machine, rsp: u64) -> u64 {
    m.call(FAR);
    let old = m.cpu.rsp;
    m.load_sp(rsp);
    m.ret();
    old
}

/// Starts a coroutine with its root on the stack at `rsp`, which calls two functions, the second
/// `depth` words deeper, and suspends it. Returns where, and the return addresses.
fn start(m: &mut Machine, rsp: u64, depth: u64) -> (u64, [u64; 2]) {
    m.words.0.insert(rsp, G);
    m.words.0.insert(rsp + 8, 0);
    let main = switch(m, rsp);
    let outer = m.call(G + 0x100);
    m.add_sp(-0x10 - 8 * depth.cast_signed());
    let inner = m.call(G + 0x200);
    let left = switch(m, main);
    (left, [inner, outer])
}

/// Copies `SIZE` bytes from rsp on.
fn copy(m: &mut Machine, rsp: u64, to: u64) {
    let range = rsp..rsp + SIZE / 2;
    let words: Vec<(u64, u64)> = m.words.0.range(range).map(|(&a, &w)| (a, w)).collect();
    for (address, word) in words {
        m.words.0.insert(address - rsp + to, word);
    }
}

#[test]
fn any_of_many_suspended_stacks_is_found_where_it_was_copied() {
    const COUNT: u64 = 60;
    let mut m = Machine::new();
    let mut all = Vec::new();
    for index in 0..COUNT {
        all.push(start(&mut m, OTHER + index * SIZE, index % 7));
    }
    for (index, (left, callers)) in (0..).zip(all) {
        let to = 0x1234_0000 + index * SIZE;
        copy(&mut m, left, to);
        let main = switch(&mut m, to);
        assert_eq!(m.callers(), callers, "{index}");
        m.ret();
        switch(&mut m, main);
    }
    assert_eq!((m.stats().failures(), m.stats().unknown), (0, 0));
}

#[test]
fn a_copied_stack_is_found_although_its_memory_was_used_again() {
    const TO: u64 = 0x1234_0000;
    let mut m = Machine::new();
    let (left, callers) = start(&mut m, OTHER, 0);
    copy(&mut m, left, TO);
    for address in (left..OTHER).step_by(8) {
        m.words.0.insert(address, 0);
    }
    // A smaller stack, in the middle of the old one; then one at its end.
    start(&mut m, left + 8, 0);
    start(&mut m, OTHER, 1);
    switch(&mut m, TO);
    assert_eq!(m.callers(), callers);
    m.ret();
    assert_eq!((m.stats().failures(), m.stats().unknown), (0, 0));
}

#[test]
fn a_copy_slightly_below_the_scheduler_is_not_alloca() {
    // Go's morestack, where the scheduler's stack is in the middle of the goroutines' ones.
    const SCHEDULER: u64 = OTHER + 0x8000;
    let mut m = Machine::new();
    m.words.0.insert(OTHER + 0xc000, G);
    m.words.0.insert(OTHER + 0xc008, 0);
    switch(&mut m, OTHER + 0xc000);
    let outer = m.call(F);
    m.add_sp(-0x18);
    let inner = m.call(G);
    let sp = m.cpu.rsp;
    m.call(FAR);
    m.load_sp(SCHEDULER);
    m.call(FAR + 0x100);
    let to = OTHER + 0x4000;
    copy(&mut m, sp, to);
    m.load_sp(to);
    m.jump(G);
    assert_eq!(m.callers(), [inner, outer]);
    m.ret();
    m.add_sp(0x18);
    m.ret();
    assert_eq!((m.callers(), m.stats().failures()), (vec![], 0));
}
