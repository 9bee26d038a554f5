//! Tests of the codes of contradictions if the row is to blame, and of merging findings.

use super::*;
use crate::verify::fixture::finding;
use unwind_sim_unwind::address::CodeAddress;

fn code(code: Code, reg: Reg, given: Option<u64>, reason: Option<Reason>) -> Code {
    own_code(&Contradiction {
        frame: 0,
        pc: CodeAddress::Instruction(1),
        code,
        reg,
        given,
        truth: 5,
        misread: false,
        reason,
        row: None,
    })
}

#[test]
fn the_rows_own_code_is_what_it_gave_or_why_it_gave_nothing() {
    let behind = Code::RowBehindCall;
    let no_row = Some(Reason::NoRow { pc: 1 });
    let given = Some(7);
    assert_eq!(code(behind, Reg::Rsp, given, None), Code::WrongCfa);
    assert_eq!(
        code(behind, Reg::Rip, given, None),
        Code::WrongReturnAddress
    );
    assert_eq!(code(behind, Reg::Rbx, given, None), Code::WrongRegister);
    assert_eq!(code(behind, Reg::Rip, None, no_row), Code::NoRowForExecuted);
    assert_eq!(code(behind, Reg::Rsp, None, no_row), Code::NoRowForExecuted);
    // The reason why a rule could not be applied is a code, but the end that it gave is not.
    let cycle = Some(Reason::Cycle { pc: 1, sp: 2 });
    assert_eq!(code(behind, Reg::Rip, None, cycle), Code::Cycle);
    for end in [Reason::RootReached, Reason::NotAtRoot] {
        let expected = Code::WrongReturnAddress;
        assert_eq!(code(behind, Reg::Rip, None, Some(end)), expected);
        assert_eq!(code(behind, Reg::Rbx, None, Some(end)), Code::WrongRegister);
    }
}

#[test]
fn other_codes_are_the_rows_own_already() {
    let no_row = Some(Reason::NoRow { pc: 1 });
    for own in [Code::WrongCfa, Code::WrongRegister, Code::NoRowForExecuted] {
        assert_eq!(code(own, Reg::Rip, None, no_row), own);
    }
    // A missing row is a code if another check reports it.
    assert_eq!(code(Code::NoRow, Reg::Rip, None, None), Code::NoRow);
    let cycle = Some(Reason::Cycle { pc: 1, sp: 2 });
    assert_eq!(code(Code::NoRow, Reg::Rip, None, cycle), Code::NoRow);
    let executed = code(Code::NoRow, Reg::Rip, None, no_row);
    assert_eq!(executed, Code::NoRowForExecuted);
}

const CHECKS: [Check; 4] = [
    Check::Instruction,
    Check::InsideCall,
    Check::AtReturn,
    Check::Walk,
];

fn site(number: u64) -> Site {
    Site {
        place: 1,
        address: 0x1000,
        activation: None,
        number,
    }
}

fn contradiction() -> Contradiction {
    finding(CodeAddress::Instruction(0x1000)).contradiction
}

#[test]
fn checks_have_stable_names() {
    let names = ["instruction", "call (ra-1)", "call (ra)", "walk"];
    assert_eq!(CHECKS.map(Check::as_str), names);
}

#[test]
fn an_outcome_keeps_its_unwinder_and_check_whatever_was_wrong() {
    for which in 0..UNWINDERS_MAX {
        for check in CHECKS {
            for wrong in [0, NOTHING | MISREAD, (1 << UNWINDER) - 1] {
                for borne_out in [0, BORNE_OUT] {
                    let outcome = Outcome {
                        next: NONE,
                        count: 1,
                        count_high: 0,
                        what: what(which, check, wrong) + borne_out,
                    };
                    assert_eq!((outcome.unwinder(), outcome.check()), (which, check));
                    assert_eq!(outcome.what & ((1 << UNWINDER) - 1), wrong);
                }
            }
        }
    }
}

#[test]
fn outcomes_are_counted_beyond_32_bits() {
    let mut outcome = Outcome {
        next: NONE,
        count: u32::MAX - 1,
        count_high: 0,
        what: 0,
    };
    let counts: Vec<_> = (0..3)
        .map(|_| {
            outcome.again();
            outcome.count()
        })
        .collect();
    assert_eq!(counts, [0xffff_ffff, 0x1_0000_0000, 0x1_0000_0001]);
}

#[test]
fn the_same_outcome_of_a_place_is_found_again_and_another_is_not() {
    let mut findings = Findings::new();
    let (mut last, at) = (NONE, (None, 7));
    let first = (0, Check::Instruction);
    assert_eq!(findings.again(last, first, 1, at), None, "nothing is known");
    assert!(findings.add(&mut last, 1, first, site(5), &[contradiction()]));
    assert!(
        !findings.add(&mut last, 2, first, site(6), &[]),
        "not confirmed"
    );
    assert_eq!(findings.again(last, first, 1, at), Some(true));
    assert_eq!(findings.again(last, first, 2, at), Some(false));
    assert_eq!(findings.again(last, first, 1, at), Some(true));
    // With something else wrong, for another unwinder, and in another check.
    assert_eq!(findings.again(last, first, 4, at), None);
    assert_eq!(findings.again(last, (1, Check::Instruction), 1, at), None);
    assert_eq!(findings.again(last, (0, Check::AtReturn), 1, at), None);
    let counts: Vec<_> = findings.outcomes.iter().map(Outcome::count).collect();
    assert_eq!(counts, [3, 2]);
    let log = findings.log.bytes();
    let bytes = findings.bytes() - log - findings.departures.bytes();
    // Two outcomes, none of walks.
    let outcomes = 2 * size_of::<Outcome>()..16 * size_of::<Outcome>();
    assert!(log > 1024 && outcomes.contains(&bytes), "{log} {bytes}");
    let found = findings.finish();
    assert_eq!(found.all.len(), 1, "what is not confirmed is not reported");
    let one = &found.all[0];
    assert_eq!((one.unwinder, one.check, one.place), (0, first.1, 1));
    assert_eq!((one.address, one.first, one.count), (0x1000, 5, 3));
    assert_eq!((one.code, one.reg), (Code::WrongCfa, Reg::Rsp));
}

#[test]
fn contradictions_of_walks_are_counted_by_unwinder_code_register_and_place() {
    let mut findings = Findings::new();
    let other = Contradiction {
        reg: Reg::Rip,
        code: Code::WrongReturnAddress,
        ..contradiction()
    };
    for number in 0..3 {
        findings.walked(2, site(number), &contradiction());
    }
    findings.walked(2, site(3), &other);
    findings.walked(3, site(4), &contradiction());
    let found = findings.finish();
    let all = found.all.iter().map(|f| (f.unwinder, f.reg, f.count));
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(unwinder, reg, _)| (*unwinder, *reg as u8));
    assert!(found.all.iter().all(|f| f.check == Check::Walk));
    let mut expected = [(2, Reg::Rsp, 3), (2, Reg::Rip, 1), (3, Reg::Rsp, 1)];
    expected.sort_by_key(|(unwinder, reg, _)| (*unwinder, *reg as u8));
    assert_eq!(all, expected);
}
