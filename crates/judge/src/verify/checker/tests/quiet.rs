//! Tests of runs of instructions: what they count is what is counted one by one.

use super::*;

/// main: call f; hlt. f saves rbx and has a loop of three rounds, with this in its middle. rbx is 3,
/// 2 and 1 there, or 5, 3 and 1 by a step of 2.
pub(super) fn looping(middle: [u8; 7], step: u8) -> Vec<u8> {
    let mut code = vec![0xcc; 0x2e];
    code[..6].copy_from_slice(&[0xe8, 0x0b, 0, 0, 0, 0xf4]);
    let f = [
        &[0x53][..],                    // 10 push rbx
        &[0x48, 0x83, 0xec, 8],         // 11 sub rsp, 8
        &[0xbb, 1 + 2 * step, 0, 0, 0], // 15 mov ebx, 3
        &[0x90, 0x90],                  // 1a nop; nop
        &middle,                        // 1c
        &[0x83, 0xeb, step],            // 23 sub ebx, 1
        &[0x77, 0xf2],                  // 26 ja 1a
        &[0x48, 0x83, 0xc4, 8],         // 28 add rsp, 8
        &[0x5b, 0xc3],                  // 2c pop rbx; ret
    ];
    code[0x10..].copy_from_slice(&f.concat());
    code
}

/// mov [rsp + 8], rbx; nop; nop: into the slot of rbx.
pub(super) const STORES: [u8; 7] = [0x48, 0x89, 0x5c, 0x24, 8, 0x90, 0x90];
/// mov [rsp + 8 * rbx], rbx; nop; nop; nop: with a step of 2, above the frame in two rounds, and into
/// the slot of rbx in the last one.
const STORES_LATE: [u8; 7] = [0x48, 0x89, 0x1c, 0xdc, 0x90, 0x90, 0x90];
/// mov al, [rbx + below the stack]; nop: it faults in the third round.
const FAULTS: [u8; 7] = [0x8a, 0x83, 0xfe, 0xff, 0xef, 0x7f, 0x90];

/// The rows of the loop, with this distance from rsp to the CFA inside.
pub(super) fn rows(inside: i32) -> Vec<(u64, Rule)> {
    let saves = |offset| above(offset).with_saved(Reg::Rbx, Value::at_cfa(-16));
    vec![
        (0, Rule::OUTERMOST),
        (0x10, above(8)),
        (0x11, saves(16)),
        (0x15, saves(inside)),
        (0x2c, saves(16)),
        (0x2d, above(8)),
    ]
}

/// rbp, which is not a frame pointer: an address in the stack's memory, below the frames.
const BELOW: u64 = SP - 0x800;
/// mov [rbp + 8 * rbx - 8], rbp; nop; nop: with a step of 2, it makes the word right that is rbp by
/// the frame-pointer rule, in the third round.
const STORES_BELOW: [u8; 7] = [0x48, 0x89, 0x6c, 0xdd, 0xf8, 0x90, 0x90];

/// Distances inside the loop for the tables: right and wrong ones.
const TABLES: [i32; 3] = [24, 32, 24];

/// Runs the code with these tables until it ends, by this many instructions at a time.
fn result(code: &[u8], tables: &[i32], slice: u64, elide: bool) -> (Vec<Told>, Results) {
    let tables = tables.iter().map(|&inside| Rows::of(rows(inside)));
    result_of(code, tables.collect(), slice, elide)
}

fn result_of(code: &[u8], tables: Vec<Rows>, slice: u64, elide: bool) -> (Vec<Told>, Results) {
    let engines = engines(tables);
    let mut machine = machine(code);
    machine.core.state.set_gpr(5, BELOW);
    // A word of 0 would be no return address.
    let word = BELOW + 8;
    machine.core.memory.poke(word, &[1; 8]).expect("mapped");
    let mut checker = checker(&engines, &machine, code, elide);
    while machine.run(slice, &mut checker) == Exit::Limit {}
    let results = checker.finish().0;
    (told(&results), results)
}

#[test]
fn a_run_counts_what_its_instructions_would() {
    // A wrong row delays runs until its outcomes were met.
    for (middle, step, tables) in [
        (STORES, 1, &TABLES[..]),
        (STORES_LATE, 2, &[24, 24]),
        (FAULTS, 1, &TABLES[..]),
    ] {
        let code = looping(middle, step);
        let (expected, one_by_one) = result(&code, tables, u64::MAX, false);
        for slice in [u64::MAX, 1, 2, 3, 5, 8, 13] {
            let (told, results) = result(&code, tables, slice, true);
            assert_eq!(told, expected, "{slice}");
            assert_eq!(results.tallies, one_by_one.tallies, "{slice}");
            assert_eq!(results.stores, one_by_one.stores, "{slice}");
            assert_eq!(results.truth, one_by_one.truth, "{slice}");
            assert_eq!(results.instructions, one_by_one.instructions);
        }
    }
}

#[test]
fn a_store_into_a_slot_ends_a_run() {
    let (told, results) = result(&looping(STORES, 1), &TABLES, u64::MAX, true);
    let wrong = |at| {
        let here = told
            .iter()
            .filter(|t| (t.0, t.1, t.2) == (0, Check::Instruction, at));
        here.map(|t| t.5).sum::<u64>()
    };
    // From the store on: in three rounds behind it, in two before it.
    let rounds = [0x15, 0x1a, 0x1b, 0x1c, 0x21, 0x22, 0x23, 0x26, 0x28];
    assert_eq!(rounds.map(wrong), [0, 2, 2, 2, 3, 3, 3, 3, 1]);
    assert_eq!(results.stores.all.len(), 1);
    // The other table is wrong in each round.
    let wrong = |at| {
        let here = told.iter().filter(|t| (t.0, t.2, t.4) == (1, at, Reg::Rsp));
        here.map(|t| t.5).sum::<u64>()
    };
    assert_eq!(rounds.map(wrong), [1, 3, 3, 3, 3, 3, 3, 3, 1]);
}

/// The store is known from earlier rounds, so that it is within a run, and only now meets a slot.
#[test]
fn a_store_that_meets_a_slot_for_the_first_time_ends_a_run() {
    let (told, results) = result(&looping(STORES_LATE, 2), &[24], u64::MAX, true);
    let wrong: Vec<_> = told.iter().map(|t| (t.2, t.4, t.5)).collect();
    let behind = [0x20, 0x21, 0x22, 0x23, 0x26, 0x28, 0x2c, 0x2d];
    assert_eq!(wrong, behind.map(|at| (at, Reg::Rbx, 1)));
    assert_eq!(results.stores.all.len(), 1);
}

/// A row with a wrong CFA reads words that are in no frame. Only a store to these ends a run.
#[test]
fn a_store_to_where_a_wrong_row_reads_ends_a_run() {
    let tables = || {
        let frame_pointer = vec![(0, Rule::OUTERMOST), (0x10, Rule::FRAME_POINTER)];
        vec![Rows::of(rows(24)), Rows::of(frame_pointer)]
    };

    let code = looping(STORES_BELOW, 2);
    let (expected, one_by_one) = result_of(&code, tables(), u64::MAX, false);

    for slice in [u64::MAX, 1, 3, 8] {
        let (told, results) = result_of(&code, tables(), slice, true);
        assert_eq!(told, expected, "{slice}");
        assert_eq!(results.tallies, one_by_one.tallies, "{slice}");
    }

    let at = |offset| expected.iter().filter(move |t| (t.0, t.2) == (1, offset));
    let counts = |offset| at(offset).map(|t| (t.4, t.5)).collect::<Vec<_>>();
    let others = |rbp| [(Reg::Rbx, 3), (Reg::Rbp, rbp), (Reg::Rsp, 3)];
    assert_eq!(
        (counts(0x1c), counts(0x22)),
        (others(3).into(), others(2).into())
    );

    // A store elsewhere makes nothing be evaluated again.
    let frames = |middle| {
        let results = result_of(&looping(middle, 2), tables(), u64::MAX, true).1;
        results.work.frames
    };

    // mov [rbp + rbx * 8 + 0x40], rbp; nop; nop
    let elsewhere = [0x48, 0x89, 0x6c, 0xdd, 0x40, 0x90, 0x90];
    assert_eq!(frames(elsewhere), frames([0x90; 7]));
    assert!(frames(STORES_BELOW) > frames(elsewhere));
}

#[test]
fn an_instruction_that_faults_in_a_run_is_checked_but_not_executed() {
    let (_, results) = result(&looping(FAULTS, 1), &TABLES, u64::MAX, true);
    // Three before the loop, two rounds of six, and the two before the one that faults.
    assert_eq!(results.instructions, 1 + 3 + 2 * 6 + 2);
    let checked = results.tallies.iter().map(|tally| tally.checked);
    assert!(checked.eq([3 + 2 * 6 + 3; 3]));
}

/// main calls f five times. Behind its call of g, f has a run that stores into the slot of rbx, and then
/// pops it: behind the pop it is no slot any more, but at the store it is one.
#[test]
fn a_store_is_into_the_slots_of_its_own_instruction() {
    let mut code = vec![0xcc; 0x21];
    let main = [
        &[0xb9, 5, 0, 0, 0][..], // 00 mov ecx, 5
        &[0xe8, 6, 0, 0, 0],     // 05 call f
        &[0x83, 0xe9, 1],        // 0a sub ecx, 1
        &[0x75, 0xf6],           // 0d jne 05
        &[0xf4],                 // 0f hlt
        &[0x53],                 // 10 f: push rbx
        &[0xe8, 10, 0, 0, 0],    // 11 call g
        &[0x48, 0x89, 0xe0],     // 16 mov rax, rsp
        &[0x48, 0x89, 0x18],     // 19 mov [rax], rbx
        &[0x90, 0x5b, 0xc3],     // 1c nop; pop rbx; ret
    ];
    code[..0x1f].copy_from_slice(&main.concat());
    code[0x20] = 0xc3; // g: ret
    let saves = above(16).with_saved(Reg::Rbx, Value::at_cfa(-16));
    let rows = vec![
        (0, Rule::OUTERMOST),
        (0x10, above(8)),
        (0x11, saves),
        (0x1e, above(8)),
    ];

    for elide in [false, true] {
        let tables = vec![Rows::of(rows.clone())];
        let (found, results) = result_of(&code, tables, u64::MAX, elide);
        assert!(found.is_empty(), "{found:?}");
        assert_eq!(results.stores.same(), 5, "{elide}");
    }
}
