//! Tests of what is evaluated again and what is not.

use super::*;
use std::sync::atomic::Ordering::Relaxed;

/// An instruction is skipped unless something that its outcome depends on has changed.
#[test]
fn nothing_is_evaluated_again_without_a_change() {
    let work = |elide| run(CALLS, vec![Rows::of(right())], elide).work;
    let all = work(false);
    // Each instruction with a caller, and both rows at each call of g.
    assert_eq!((all.frames, all.whole, all.parts), (28, 28 + 6, 0));
    // A whole claim if the frame changes: at f's start, and three times at g's start and after its
    // call. Parts if the row or its base register changes: at f's push and pop, and three times at
    // each instruction of g except the first and the pop.
    let quick = work(true);
    assert_eq!((quick.frames, quick.whole, quick.parts), (16, 7, 9));
}

/// Two tables, where the second says nothing that the first does not say.
#[test]
fn a_part_of_another_tables_claims_is_not_evaluated() {
    let frame = || Rows {
        carries: RegMask::FRAME,
        ..Rows::of(right())
    };
    let work = |tables: Vec<Rows>| run(CALLS, tables, true).work;
    let alone = work(vec![Rows::of(right())]);
    let both = work(vec![Rows::of(right()), frame()]);
    assert_eq!((both.frames, both.whole), (alone.frames, alone.whole));
    // Unless skipping is off.
    let all = run(CALLS, vec![Rows::of(right()), frame()], false).work;
    assert_eq!((all.frames, all.whole, all.parts), (28, 2 * (28 + 6), 0));
}

/// Two tables, where one has rows that the other lacks.
#[test]
fn a_claim_that_did_not_change_is_not_evaluated_with_one_that_did() {
    let without = || {
        // With rsp as the base also where the other table uses rbp.
        let mut rows = right();
        rows.retain(|row| row.0 != 0x34);
        Rows::of(rows)
    };
    let alone = run(CALLS, vec![without()], true).work;
    // The claim at 34 is the same as at 31, and nothing that it depends on has changed.
    assert_eq!((alone.frames, alone.whole, alone.parts), (13, 7, 6));
    let both = run(CALLS, vec![without(), Rows::of(right())], true).work;
    // At each instruction of g the first table evaluates what it evaluates alone. The other's
    // claims are a part of that, except where its base is rbp.
    assert_eq!((both.frames, both.whole, both.parts), (16, 7, 6 + 3));
}

#[test]
fn evaluations_are_told() {
    let work = Work {
        frames: 1,
        whole: 2,
        parts: 3,
    };
    let text = "claims evaluated at 1 instructions: 2 in full, 3 in part";
    assert_eq!(work.to_string(), text);
}

/// A loop of three instructions, one of them a nop, at depth 1.
#[test]
fn walks_are_taken_every_so_often() {
    let rows = Rows::of(vec![(0, Rule::OUTERMOST), (6, above(8))]);
    let results = run(&counting(1000), vec![rows], true);
    // One at the call, then one every 997 of 3004 instructions.
    assert_eq!(results.instructions, 3004);
    assert_eq!(results.tallies[0].walks, 4);
    let whole = 1;
    let expected = Work {
        frames: 1,
        whole,
        parts: 0,
    };
    assert_eq!(results.work, expected);
}

/// f calls itself 130 times and then loops.
#[test]
fn walks_of_deep_stacks_are_taken_less_often() {
    const CODE: &[u8] = &[
        0xb9, 131, 0, 0, 0, // 00 mov ecx, 131
        0xe8, 1, 0, 0, 0,    // 05 call f
        0xf4, // 0a hlt
        0x83, 0xe9, 1, // 0b f: sub ecx, 1
        0x74, 6, // 0e je 16
        0xe8, 0xf6, 0xff, 0xff, 0xff, // 10 call f
        0xc3, // 15 ret
        0xb9, 0xb8, 0x0b, 0, 0,    // 16 mov ecx, 3000
        0x90, // 1b nop
        0x83, 0xe9, 1, // 1c sub ecx, 1
        0x75, 0xfa, // 1f jne 1b
        0xc3, // 21 ret
    ];
    let rows = Rows::of(vec![(0, Rule::OUTERMOST), (0xb, above(8))]);
    let results = run(CODE, vec![rows], true);
    assert_eq!(results.instructions, 9527);
    // One at the first visit of each call, the second after 5 instructions; one 997 instructions
    // later, and then, with 131 frames, one every 3 * 997.
    assert_eq!(results.tallies[0].walks, 2 + 3);
}

#[test]
fn rows_are_looked_up_once_for_each_instruction_and_return_address() {
    let rows = Rows::of(right());
    let finds = rows.finds.clone();
    run(CALLS, vec![rows], true);
    // 14 instructions, and for both calls the return address and one before it.
    let checked = 14 + 2 * 2;
    let walked = 2 * 3 - 1;
    assert_eq!(finds.load(Relaxed), checked + walked);
}

#[test]
fn compiled_rows_are_forgotten_when_they_are_too_many() {
    let compiled = |count: u64| {
        let mut rows = right();
        // All different, or they would be stored once.
        rows.extend((0..count).map(|n| (0x100 + n / 32, above(8 * n as i32))));
        let rows = Rows::of(rows);
        let compiled = rows.compiled.clone();
        let results = run(CALLS, vec![rows], true);
        assert_eq!(told(&results), []);
        (compiled.load(Relaxed), results.memory.rows)
    };
    let (once, bytes) = compiled(0);
    assert_eq!(once, 1);
    assert!((1..CACHE_MIN).contains(&bytes), "{bytes}");
    let (often, _) = compiled(20_000);
    assert!(often > 10, "{often}");
}

#[test]
fn what_a_run_keeps_is_counted() {
    let one = run(CALLS, vec![Rows::of(right())], true);
    let memory = one.memory;
    let met = memory.met - one.executed.bytes() - one.places.bytes();
    // One chunk of addresses, and its index.
    assert!((32..1024).contains(&met), "{met}");
    assert!(memory.known >= 14 * 20 + 2 * 20, "{memory}");
    assert!(memory.known < 4096, "{memory}");
    assert!((512..16 << 10).contains(&memory.claims), "{memory}");
    assert!(memory.findings > 0 && memory.decoded == 0);
}
