//! Tests of leaving the check of an instruction out: everything else stays as it is.

use super::super::quiet::Started;
use super::stacked::Function;
use super::*;
use crate::random::Random;
use unwind_sim_emulator::machine::{BlockId, Executed};

/// Checks one of so many instructions, and leaves the others out.
struct OneIn<'c, 'a>(&'c mut Checker<'a>, u64);

impl Observer for OneIn<'_, '_> {
    fn enter(&mut self, core: &Core, block: Option<BlockId>, operations: usize, end: u64) -> usize {
        self.0.enter_block(core, block, operations, end);
        0
    }

    fn before(&mut self, core: &Core, insn: &Executed) {
        let OneIn(checker, count) = self;
        let known = checker.arrive(core, insn).expect("it is looked up");
        if checker.number().is_multiple_of(*count) {
            let started = checker.check(core, insn, known.claims, false);
            assert!(started == Started::Nothing);
        } else {
            checker.outcome.give_up()
        }
        checker.prepare(core, insn, &known);
    }

    fn after(&mut self, core: &Core, insn: &Executed, next: u64) {
        self.0.after(core, insn, next);
    }
}

/// What is found when one of `count` instructions is checked, and the shadow stack at the end.
fn results(code: &[u8], rows: &[(u64, Rule)], elide: bool, count: u64) -> (Results, String) {
    let frame_pointer = vec![(0, Rule::OUTERMOST), (0x10, Rule::FRAME_POINTER)];
    let engines = engines(vec![Rows::of(rows.to_vec()), Rows::of(frame_pointer)]);
    let mut machine = machine(code);
    let mut checker = checker(&engines, &machine, code, elide);
    machine.run(1000, &mut OneIn(&mut checker, count));
    let tracker = format!("{:?}", checker.stacks.tracker);
    (checker.finish().0, tracker)
}

/// Compares the results of checking one of some instructions with those of checking all. Returns the
/// number of stores into live slots, and of wrong instructions that were found and not found.
fn compared(code: &[u8], rows: &[(u64, Rule)]) -> [u64; 3] {
    let (all, stack) = results(code, rows, false, 1);
    let stores = all.stores.count() + all.stores.same();
    let mut counts = [stores, 0, 0];

    for count in [2, 3, 7, u64::MAX] {
        let (expected, _) = results(code, rows, false, count);
        let (some, tracker) = results(code, rows, true, count);
        // Nothing is used again that has changed at an instruction without a check.
        assert_eq!(told(&some), told(&expected), "one in {count}");
        assert_eq!(some.tallies, expected.tallies, "one in {count}");

        // What does not depend on checks is the same without them.
        assert_eq!(tracker, stack, "one in {count}");
        assert_eq!(some.truth, all.truth, "one in {count}");
        assert_eq!(some.stores, all.stores, "one in {count}");
        assert_eq!(some.instructions, all.instructions, "one in {count}");
        for (some, all) in some.tallies.iter().zip(&all.tallies) {
            assert_eq!((some.calls, some.rows), (all.calls, all.rows));
            assert_eq!(some.calls_wrong, all.calls_wrong, "one in {count}");
            assert!(some.checked < all.checked && some.wrong <= all.wrong);
            counts[1] += some.wrong;
            counts[2] += all.wrong - some.wrong;
        }
    }

    counts
}

/// f saves rbx, overwrites it and calls g: the row at the call is wrong, and was right at the store
/// before it.
#[test]
fn a_call_whose_own_check_is_left_out_is_still_checked() {
    let mut code = CALLS.to_vec();
    let f = [
        &[0x53][..],               // 10 push rbx
        &[0x48, 0x89, 0x24, 0x24], // 11 mov [rsp], rsp
        &[0xe8, 0x16, 0, 0, 0],    // 15 call g
        &[0x5b, 0xc3],             // 1a pop rbx; ret
    ];
    let f = f.concat();
    code[0x10..][..f.len()].copy_from_slice(&f);
    let rows = with(0x1b, above(8));

    // The store is instruction 2.
    let (results, _) = results(&code, &rows, true, 2);
    assert_eq!(results.tallies[0].calls_wrong, 1);
    compared(&code, &rows);
}

#[test]
fn a_check_that_is_left_out_changes_nothing_else() {
    let mut sums = compared(CALLS, &right());
    let mut add = |counts: [u64; 3]| {
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += count;
        }
    };

    add(compared(
        &quiet::looping(quiet::STORES, 1),
        &quiet::rows(32),
    ));
    add(compared(
        &quiet::looping(quiet::STORES, 1),
        &quiet::rows(24),
    ));
    for seed in 0..50 {
        let function = Function::new(&mut Random::new(seed), seed % 2 == 0, 12);
        add(compared(&main_of(&[], &function.code), &function.rows));
    }

    // There was something of each kind.
    assert!(sums.iter().all(|&sum| sum > 20), "{sums:?}");
}
