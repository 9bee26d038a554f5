//! Tests of the check at a call: the row that a walk will use, at the return address and one before
//! it.

use super::*;

/// main: call f. f saves rbx and calls g, which does not return. After the call is another
/// function.
const NO_RETURN: &[u8] = &[
    0xe8, 0x0b, 0, 0, 0,    // 00 call f
    0xf4, // 05 hlt
    0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, //
    0x53, // 10 f: push rbx
    0xe8, 1, 0, 0, 0,    // 11 call g
    0x90, // 16 the next function
    0xf4, // 17 g: hlt
];

fn rows() -> Rows {
    Rows::of(vec![
        (0, Rule::OUTERMOST),
        (0x10, above(8)),
        (0x11, above(16).with_saved(Reg::Rbx, Value::at_cfa(-16))),
        (0x16, above(8)),
    ])
}

fn results(rows: impl Fn() -> Rows) -> (Vec<Told>, Tally) {
    let quick = run(NO_RETURN, vec![rows()], true);
    let slow = run(NO_RETURN, vec![rows()], false);
    assert_eq!(told(&quick), told(&slow));
    assert_eq!(quick.tallies, slow.tallies);
    (told(&quick), quick.tallies[0])
}

#[test]
fn the_next_functions_row_behind_a_call_that_does_not_return_is_told() {
    let (told, tally) = results(rows);
    let behind = (
        0,
        Check::AtReturn,
        0x16,
        ReasonCode::RowBehindCall,
        Reg::Rsp,
        1,
    );
    assert_eq!(told, [behind]);
    let counts = (tally.calls, tally.calls_wrong, tally.calls_wrong_at_return);
    assert_eq!(counts, (1, 0, 1));
    assert_eq!((tally.checked, tally.wrong), (3, 0));
}

#[test]
fn a_row_that_is_missing_behind_a_call_is_none_of_executed_code() {
    let (told, tally) = results(|| Rows {
        gap: 0x16..0x17,
        ..rows()
    });
    let behind = (0, Check::AtReturn, 0x16, ReasonCode::NoRow, Reg::Rip, 1);
    assert_eq!(told, [behind]);
    assert_eq!((tally.calls_wrong, tally.calls_wrong_at_return), (0, 1));
}

#[test]
fn a_call_without_a_row_was_executed() {
    let (told, tally) = results(|| Rows {
        gap: 0x11..0x17,
        ..rows()
    });
    let code = ReasonCode::NoRowForExecuted;
    let expected = [
        (0, Check::Instruction, 0x11, code, Reg::Rip, 1),
        (0, Check::InsideCall, 0x16, code, Reg::Rip, 1),
        (0, Check::AtReturn, 0x16, code, Reg::Rip, 1),
    ];
    assert_eq!(told[..3], expected);
    // And the walk that uses the row.
    assert_eq!(told.len(), 4);
    assert_eq!((told[3].1, told[3].3), (Check::Walk, code));
    let counts = (tally.calls, tally.calls_wrong, tally.calls_wrong_at_return);
    assert_eq!(counts, (1, 1, 1));
    assert_eq!((tally.walks, tally.walks_wrong), (2, 1));
}

#[test]
fn a_wrong_row_of_the_call_is_wrong_behind_it_too() {
    let found = findings(|| Rows::of(with(0x11, above(24))));
    let code = ReasonCode::WrongCfa;
    let at = |check| {
        let mut all = found.iter().filter(move |told| told.1 == check);
        let found = all.next().map(|told| (told.2, told.3, told.5));
        assert_eq!(all.next(), None);
        found
    };
    assert_eq!(at(Check::InsideCall), Some((0x1b, code, 3)));
    assert_eq!(at(Check::AtReturn), Some((0x1b, code, 3)));
}

#[test]
fn a_register_that_is_not_carried_is_not_there_at_a_call() {
    const CODE: &[u8] = &[
        0xe8, 0x01, 0, 0, 0,    // 00 call f
        0xf4, // 05 hlt
        0x4c, 0x8d, 0x54, 0x24, 8, // 06 f: lea r10, [rsp + 8]
        0xe8, 1, 0, 0, 0,    // 0b call g
        0xc3, // 10 ret
        0xc3, // 11 g: ret
    ];
    let rows = Rows::of(vec![
        (0, Rule::OUTERMOST),
        (6, above(8)),
        (0xb, Rule::call(Value::reg(Reg::R10, 0))),
        (0x10, above(8)),
    ]);
    let results = run(CODE, vec![rows], true);
    let missing = |check| {
        let code = ReasonCode::RegisterNotCarried;
        (0, check, 0x10, code, Reg::Rip, 1)
    };
    let expected = [Check::InsideCall, Check::Walk].map(missing);
    assert_eq!(told(&results), expected);
    assert_eq!(results.tallies[0].calls_wrong, 1);
}

#[test]
fn a_rule_for_the_topmost_frame_only_is_none_at_a_call() {
    let rule = above(16).with_saved(Reg::Rbx, Value::at_cfa(-16));
    let (told, tally) = results(|| Rows {
        topmost_only: Some(rule),
        ..rows()
    });
    let inside = told.iter().find(|told| told.1 == Check::InsideCall);
    let inside = inside.map(|told| (told.2, told.4));
    assert_eq!(inside, Some((0x16, Reg::Rip)));
    // At the instruction itself it is right.
    assert!(told.iter().all(|told| told.1 != Check::Instruction));
    assert_eq!((tally.wrong, tally.calls_wrong), (0, 1));
}
