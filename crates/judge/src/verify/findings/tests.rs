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
                        content: 0,
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
        content: 0,
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
    let mut findings = Findings::new(0);
    let (mut last, mut met, at) = (NONE, Confirmed::default(), (None, 7));
    let first = (0, Check::Instruction);

    let again = |findings: &mut Findings, last, met: &_, check, wrong| {
        findings.again((last, met), check, wrong, at)
    };

    assert_eq!(
        again(&mut findings, last, &met, first, 1),
        None,
        "nothing is known"
    );

    let found = [contradiction()];
    assert!(findings.add((&mut last, Some(&mut met)), 1, first, site(5), &found));
    assert!(
        !findings.add((&mut last, Some(&mut met)), 2, first, site(6), &[]),
        "not confirmed"
    );

    assert_eq!(again(&mut findings, last, &met, first, 1), Some(true));
    assert_eq!(again(&mut findings, last, &met, first, 2), Some(false));
    assert_eq!(again(&mut findings, last, &met, first, 1), Some(true));

    // With something else wrong, for another unwinder, and in another check.
    assert_eq!(again(&mut findings, last, &met, first, 4), None);
    assert_eq!(again(&mut findings, last, &met, (1, first.1), 1), None);
    assert_eq!(
        again(&mut findings, last, &met, (0, Check::AtReturn), 1),
        None
    );

    // In another process.
    let other = Confirmed::default();
    assert_eq!(again(&mut findings, last, &other, first, 1), None);

    let counts: Vec<_> = findings.outcomes.iter().map(Outcome::count).collect();
    assert_eq!(counts, [3, 2]);

    // Without the log and the departures, what is left are the outcomes.
    let log = findings.log.bytes();
    let bytes = findings.bytes()
        - log
        - findings
            .departures
            .iter()
            .map(Departures::bytes)
            .sum::<usize>();
    // Two outcomes, none of walks.
    let outcomes = 2 * size_of::<Outcome>()..16 * size_of::<Outcome>();
    assert!(log > 1024 && outcomes.contains(&bytes), "{log} {bytes}");

    let found = findings.finish(&Places::default());
    assert_eq!(found.all.len(), 1, "what is not confirmed is not reported");
    let one = &found.all[0];
    assert_eq!((one.unwinder, one.check, one.place), (0, first.1, 1));
    assert_eq!((one.address, one.first, one.count), (0x1000, 5, 3));
    assert_eq!((one.code, one.reg), (Code::WrongCfa, Reg::Rsp));
}

#[test]
fn contradictions_of_walks_are_counted_by_unwinder_code_register_and_place() {
    let mut findings = Findings::new(0);
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
    let found = findings.finish(&Places::default());
    let all = found.all.iter().map(|f| (f.unwinder, f.reg, f.count));
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(unwinder, reg, _)| (*unwinder, *reg as u8));
    assert!(found.all.iter().all(|f| f.check == Check::Walk));
    let mut expected = [(2, Reg::Rsp, 3), (2, Reg::Rip, 1), (3, Reg::Rsp, 1)];
    expected.sort_by_key(|(unwinder, reg, _)| (*unwinder, *reg as u8));
    assert_eq!(all, expected);
}

/// Another process's outcome with the same content is counted with the first, unless its values are
/// remembered until its function is left.
#[test]
fn outcomes_of_processes_are_counted_together() {
    let unread = |address| Contradiction {
        given: None,
        reason: Some(Reason::NoRow { pc: address }),
        ..contradiction()
    };
    let first = (0, Check::Instruction);
    let mut findings = Findings::new(0);
    let mut last = NONE;
    let mut met = [const { Confirmed(Vec::new()) }; 4];

    let mut add = |findings: &mut Findings, process: usize, found: &[Contradiction]| {
        let place = (&mut last, Some(&mut met[process]));
        assert!(findings.add(place, 1, first, site(process as u64), found));
        findings.outcomes.len()
    };

    assert_eq!(add(&mut findings, 0, &[unread(1)]), 1);
    assert_eq!(add(&mut findings, 1, &[unread(2)]), 1, "another value");
    // Two contradictions are not the same content as one of them.
    assert_eq!(add(&mut findings, 2, &[unread(1), unread(1)]), 2);
    assert_eq!(add(&mut findings, 3, &[contradiction()]), 3);
    assert_eq!(add(&mut findings, 2, &[contradiction()]), 4, "it may leave");

    let counts: Vec<_> = findings.outcomes.iter().map(Outcome::count).collect();
    assert_eq!(counts, [2, 1, 1, 1]);
    assert_eq!(
        findings
            .finish(&Places::default())
            .all
            .iter()
            .map(|f| f.count)
            .sum::<u64>(),
        6
    );

    // Each process has met only what it met itself.
    for process in [1, 3] {
        assert_eq!(met[process].contains(0), process == 1);
        assert_eq!(met[process].contains(2), process == 3);
    }
}

/// Where values are no longer remembered, what is wrong is known without looking at it.
#[test]
fn a_plain_outcome_of_another_process_is_not_looked_at_again() {
    let first = (0, Check::Instruction);
    let mut findings = Findings::new(0);
    let mut last = NONE;
    let plain = [contradiction()];
    let unread = [Contradiction {
        given: None,
        ..contradiction()
    }];
    let mut met = Confirmed::default();

    let mut add_plain = |findings: &mut Findings, last: &mut u32, wrong| {
        findings.add_plain((last, Some(&mut met)), wrong, first, &site(9))
    };

    findings.add((&mut last, None), 1, first, site(0), &plain);
    assert!(!add_plain(&mut findings, &mut last, 1), "remembered");

    while !findings.departures[0].is_full() {
        findings.add((&mut NONE.clone(), None), 1, first, site(1), &plain);
    }
    // What is known was added while its values were remembered: it has no content to compare.
    assert!(!add_plain(&mut findings, &mut last, 1), "of one process");

    findings.add((&mut last, None), 1, first, site(2), &plain);
    findings.add((&mut last, None), 2, first, site(3), &unread);
    findings.add((&mut last, None), 4, first, site(3), &[]);

    assert!(add_plain(&mut findings, &mut last, 1));
    // One gave no value, one has no contradiction, and one was never met.
    let none = [2, 4, 8].map(|wrong| add_plain(&mut findings, &mut last, wrong));
    assert_eq!(none, [false; 3]);

    let number = findings.outcomes.len() as u32 - 3;
    assert_eq!(findings.outcomes[number as usize].count(), 2);
    assert!(met.contains(number) && !met.contains(number + 1));
}

/// A function leaves as its row says each time the row was met: alone, in a repeat, and in a walk.
#[test]
fn what_a_function_leaves_by_is_found_however_it_was_counted() {
    let here = (Some(5), 7);
    let first = (0, Check::Instruction);
    let found = [contradiction()];
    let met_in = |times: u64| Site {
        activation: Some(5),
        ..site(times)
    };

    let leave = |findings: &mut Findings| {
        let after = Cpu {
            rsp: found[0].given.expect("it gave a value"),
            ..Cpu::default()
        };
        findings.leave(Some(5), &after);
    };

    let mut findings = Findings::new(0);
    findings.add((&mut NONE.clone(), None), 1, first, met_in(0), &found);
    leave(&mut findings);
    // Met again by its number, as in a run.
    assert!(findings.count(0, here));
    leave(&mut findings);

    // In a repeat of two instructions, it is met twice at a time.
    let key = RepeatKey::new(1, |_| 1);
    let repeat = findings.add_repeat(&mut NONE.clone(), (key, 2), &[0, 0]);
    findings.count_repeat(repeat.expect("room"), here);
    assert!(findings.repeats.contradictions().eq([(0, 2)]));

    leave(&mut findings);
    for number in [8, 9] {
        findings.walked(0, met_in(number), &found[0]);
        leave(&mut findings);
    }

    // Outcome 1 is that of the walks, which have their own.
    assert_eq!([0, 1].map(|id| findings.departures[0].left(id)), [4, 2]);
    let all = findings.finish(&Places::default());
    assert_eq!(all.target[0], 4);
    assert!(all.all.iter().all(|f| f.code == Code::RowOfTarget));
}

/// What one unwinder gets wrong does not fill the bounds of another one.
#[test]
fn an_unwinder_is_judged_as_if_it_were_alone() {
    let first = (0, Check::Instruction);
    let of_function = |number| Site {
        activation: Some(5),
        ..site(number)
    };

    let after = Cpu {
        rsp: contradiction().given.expect("it gave a value"),
        ..Cpu::default()
    };

    for expected in [0, 0b10] {
        let mut findings = Findings::new(expected);
        let is_plain = [contradiction()];

        for number in 0..5000 {
            let other = (1, Check::Instruction);
            findings.add((&mut NONE.clone(), None), 1, other, site(number), &is_plain);
        }

        let met = of_function(5000);
        findings.add((&mut NONE.clone(), None), 1, first, met, &is_plain);
        for number in 5001..7000 {
            let other = (1, Check::Instruction);
            findings.add((&mut NONE.clone(), None), 1, other, site(number), &is_plain);
        }

        findings.leave(Some(5), &after);
        // The bound that the other one reached is its own, and is reported.
        let bounds = [0, 1].map(|which| findings.bounds(which));
        assert_eq!(bounds[0], Bounds::default());
        // An unwinder that is expected to err has no values remembered at all, so it reaches no
        // bound.
        let not_remembered = if expected == 0 { 6999 - 4096 } else { 0 };
        assert_eq!(bounds[1].not_remembered, not_remembered);

        let all = findings.finish(&Places::default()).all;
        let mine = all.iter().filter(|f| f.unwinder == 0).map(|f| f.code);
        assert_eq!(mine.collect::<Vec<_>>(), [Code::RowOfTarget]);
    }
}

/// Of an unwinder that is expected to err, one finding stands for those of its cause.
#[test]
fn expected_findings_are_counted_by_cause() {
    let other = Contradiction {
        reg: Reg::Rip,
        code: Code::WrongReturnAddress,
        ..contradiction()
    };

    let findings = |keeps_each: bool| {
        let mut findings = Findings::new(0b10);
        if keeps_each {
            findings.keep_each();
        }

        let check = Check::Instruction;
        // Not in order: the first of a cause has the lowest number, whenever it was added.
        for (which, number) in [(0, 7), (1, 7), (1, 5), (1, 9), (0, 6)] {
            let at = Site {
                address: 0x1000 + number,
                ..site(number)
            };
            let found = [contradiction(), other.clone()];
            findings.add((&mut NONE.clone(), None), 1, (which, check), at, &found);
            // The same one in another outcome.
            findings.add(
                (&mut NONE.clone(), None),
                2,
                (which, check),
                at,
                &found[..1],
            );
        }

        let all = findings.finish(&Places::default()).all.into_iter();
        let all = all.map(|f| (f.unwinder, f.reg, f.address, f.count, f.stands_for));
        all.collect::<Vec<_>>()
    };

    // Of the first unwinder each is kept; the same one in two outcomes counts twice.
    let mut own = vec![
        (0, Reg::Rip, 0x1006, 1, 1),
        (0, Reg::Rsp, 0x1006, 2, 1),
        (0, Reg::Rip, 0x1007, 1, 1),
        (0, Reg::Rsp, 0x1007, 2, 1),
    ];

    let order = |f: &(usize, Reg, u64, u64, u64)| (f.0, f.2, f.1 as u8);
    let sorted = |mut all: Vec<_>| {
        all.sort_by_key(order);
        all
    };

    assert_eq!(sorted(findings(true)).len(), 4 + 6);
    // Of the other one for each cause, the first that was met, which stands for three.
    own.extend([(1, Reg::Rip, 0x1005, 3, 3), (1, Reg::Rsp, 0x1005, 6, 3)]);
    assert_eq!(sorted(findings(false)), sorted(own));
}
