//! Rows and code by hand: which changes are defects.

use super::code::{FunctionCode, Targets};
use super::defect::{Kind, MutationTarget};
use super::equal::{Argument, MutatedFunction};
use super::{DefectOutcome, Score, Tally, UncaughtDefect};
use crate::proof::claims::Claims;
use crate::random::Random;
use hashbrown::HashSet;
use iced_x86::{Decoder, DecoderOptions};
use unwind_sim_unwind::cache::NewRow;
use unwind_sim_unwind::convention::Convention;
use unwind_sim_unwind::regs::{Reg, RegMask};
use unwind_sim_unwind::rule::{Rule, Value};

/// `push %rbx; sub $16,%rsp; xor %ebx,%ebx; add $16,%rsp; pop %rbx; ret; nop`
const CODE: [u8; 14] = [
    0x53, 0x48, 0x83, 0xec, 0x10, 0x31, 0xdb, 0x48, 0x83, 0xc4, 0x10, 0x5b, 0xc3, 0x90,
];
const START: u64 = 0x1000;

fn code() -> FunctionCode {
    let decoder = Decoder::with_ip(64, &CODE, START, DecoderOptions::NONE);
    FunctionCode {
        insns: decoder.into_iter().collect(),
        has_hidden_jumps: false,
        claims: Claims::of(Convention::SystemV),
        preserved: RegMask::CALLEE_SAVED,
        final_calls: HashSet::new(),
    }
}

fn row(offset: u64, cfa: i32, rbx: Value) -> NewRow {
    NewRow {
        start: START + offset,
        offset: 0,
        rule: Rule::call(Value::reg(Reg::Rsp, cfa)).with_saved(Reg::Rbx, rbx),
    }
}

fn rows() -> Vec<NewRow> {
    let saved = Value::at_cfa(-16);
    vec![
        row(0, 8, Value::Unspecified),
        row(1, 16, saved),
        row(5, 32, saved),
        row(11, 16, saved),
        row(12, 8, Value::Unspecified),
    ]
}

fn argument(change: impl FnOnce(&mut Vec<NewRow>)) -> Option<Argument> {
    let (code, right, mut changed) = (code(), rows(), rows());
    change(&mut changed);
    let end = START + CODE.len() as u64;
    let pair = MutatedFunction {
        code: &code,
        range: START..end,
        right: &right,
        changed: &changed,
        changed_end: end,
        targets: &Targets::new(),
    };
    pair.argument(1)
}

#[test]
fn a_row_that_begins_within_an_instruction_begins_behind_it() {
    let found = argument(|rows| rows[2].start -= 1);
    assert_eq!(found, Some(Argument::NoInstruction));
}

#[test]
fn padding_behind_a_return_needs_no_row() {
    let found = argument(|rows| rows.push(row(13, 800, Value::Unspecified)));
    assert_eq!(found, Some(Argument::Padding));
}

#[test]
fn the_return_itself_needs_its_row() {
    assert_eq!(
        argument(|rows| rows[4] = row(12, 800, Value::Unspecified)),
        None
    );
}

#[test]
fn a_register_is_unchanged_until_it_is_written() {
    let found = argument(|rows| rows[1] = row(1, 16, Value::Unspecified));
    assert_eq!(found, Some(Argument::SameFrame));
    assert_eq!(
        argument(|rows| rows[2] = row(5, 32, Value::Unspecified)),
        None
    );
}

#[test]
fn a_slot_holds_its_value_behind_the_pop() {
    let found = argument(|rows| rows[4] = row(12, 8, Value::at_cfa(-16)));
    assert_eq!(found, Some(Argument::SameFrame));
    assert_eq!(
        argument(|rows| rows[4] = row(12, 8, Value::at_cfa(-24))),
        None
    );
}

#[test]
fn wrong_offsets_registers_and_places_are_defects() {
    assert_eq!(
        argument(|rows| rows[2] = row(5, 24, Value::at_cfa(-16))),
        None
    );
    assert_eq!(
        argument(|rows| rows.retain(|row| row.start != START + 1)),
        None
    );
    assert_eq!(argument(|rows| rows[1].start = START + 5), None);
    assert_eq!(argument(|rows| rows[2].start = START + 1), None);
    let based_on_rbp = Value::reg(Reg::Rbp, 32);
    assert_eq!(argument(|rows| rows[2].rule.cfa = based_on_rbp), None);
}

#[test]
fn every_kind_of_defect_changes_a_row() {
    let (code, rows) = (code(), rows());
    let other = [
        row(0, 8, Value::Unspecified),
        row(2, 72, Value::Unspecified),
    ];
    let range = START..START + CODE.len() as u64;
    let victim = MutationTarget {
        range: range.clone(),
        rows: &rows,
        code: &code,
        other: (&other, START),
    };
    for kind in Kind::ALL {
        let mut random = Random::new(7);
        let defect = (0..100).find_map(|_| victim.defect(kind, &mut random));
        let defect = defect.unwrap_or_else(|| panic!("{}: no defect", kind.as_str()));
        assert!(
            defect.rows != rows || defect.end < range.end,
            "{}",
            kind.as_str()
        );
    }
}

#[test]
fn what_is_equivalent_is_neither_caught_nor_missed() {
    let tally = Tally {
        caught: 3,
        equivalent: 100,
        conflicts: 100,
        missed: 1,
    };
    assert_eq!(tally.score(), Some(75.0));
    let none = Tally {
        caught: 0,
        missed: 0,
        ..tally
    };
    assert_eq!(none.score(), None);
}

#[test]
fn what_is_caught_though_equivalent_was_not_caught() {
    let mut score = Score::default();
    let miss = UncaughtDefect {
        kind: Kind::CfaOffset,
        function: START,
        row: START,
        change: String::new(),
        answer: String::new(),
    };
    score.count(Kind::CfaOffset, DefectOutcome::Conflict(miss));
    score.count(Kind::CfaOffset, DefectOutcome::Caught);
    let total = score.total();
    assert_eq!((total.caught, total.conflicts, total.all()), (1, 1, 2));
    assert_eq!(score.conflicts.len(), 1);
}
