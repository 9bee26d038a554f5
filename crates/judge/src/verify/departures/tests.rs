//! Tests of which outcomes a function's departure confirms.

use super::*;
use crate::verify::numbered::NONE;
use crate::verify::repeats::Key;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::reason::Code;

const AFTER: Cpu = Cpu {
    rip: 0x20,
    rsp: 0x10,
    saved: [1, 2, 3, 4, 5, 6],
};

fn found(reg: Reg, given: Option<u64>) -> Contradiction {
    Contradiction {
        frame: 0,
        pc: CodeAddress::Instruction(0x1000),
        code: Code::WrongRegister,
        reg,
        given,
        truth: 99,
        misread: false,
        reason: None,
        row: None,
    }
}

impl Departures {
    /// The number of outcomes that are not forgotten.
    fn count(&self) -> usize {
        (self.remembered.end - self.remembered.start) as usize
    }
}

/// The values that are true after the departure.
fn right() -> [Contradiction; 3] {
    [
        found(Reg::Rsp, Some(0x10)),
        found(Reg::Rip, Some(0x20)),
        found(Reg::R12, Some(3)),
    ]
}

/// Whether outcome 1 with these contradictions is confirmed, after it was met in the frame of
/// function 5, which then leaves.
fn is_borne_out(found: &[Contradiction]) -> bool {
    let mut departures = Departures::default();
    departures.learn(1, found);
    departures.meet(1, Some(5), 100);
    departures.leave(Some(5), &AFTER, &Repeats::default());
    assert!(departures.left(1) < 2);
    departures.left(1) == 1
}

#[test]
fn every_value_that_the_row_gave_must_be_there_behind_the_jump() {
    assert!(is_borne_out(&right()));
    for (place, reg) in [Reg::Rsp, Reg::Rip, Reg::R12].into_iter().enumerate() {
        let mut other = right();
        other[place] = found(reg, Some(7));
        assert!(!is_borne_out(&other), "{reg:?} is another");
        other[place] = found(reg, None);
        assert!(!is_borne_out(&other), "{reg:?} is not given");
        let mut misread = right();
        misread[place].misread = true;
        assert!(!is_borne_out(&misread));
    }
    let saved = Reg::CALLEE_SAVED.into_iter().zip(1..);
    let saved: Vec<_> = saved.map(|(reg, value)| found(reg, Some(value))).collect();
    assert!(is_borne_out(&saved));
    // The value of rax there is not known.
    assert!(!is_borne_out(&[found(Reg::Rax, Some(1))]));
    assert!(!is_borne_out(&[]));
}

#[test]
fn once_borne_out_each_time_counts() {
    let mut departures = Departures::default();
    departures.learn(1, &right());
    for times in 1..4 {
        departures.meet(1, Some(5), 100 * times);
        // Another function leaves.
        departures.leave(Some(6), &AFTER, &Repeats::default());
        assert_eq!(departures.left(1), times - 1);
        departures.leave(Some(5), &AFTER, &Repeats::default());
        assert_eq!((departures.left(1), departures.left(2)), (times, 0));
        departures.leave(Some(5), &AFTER, &Repeats::default());
        assert_eq!(departures.left(1), times, "it was not met again");
    }
}

#[test]
fn what_its_departure_did_not_bear_out_is_over() {
    let mut departures = Departures::default();
    departures.learn(1, &right());
    departures.meet(1, Some(5), 100);
    departures.leave(Some(5), &Cpu { rsp: 8, ..AFTER }, &Repeats::default());
    departures.leave(Some(5), &AFTER, &Repeats::default());
    assert_eq!(departures.left(1), 0);
}

#[test]
fn what_was_met_since_rsp_was_loaded_or_by_who_loaded_it_is_of_the_departure() {
    let left = |activation, number, loads: bool, function| {
        let mut departures = Departures::default();
        departures.learn(1, &right());
        departures.meet(1, activation, number);
        if loads {
            departures.load(Some(7), 100);
        }
        departures.leave(function, &AFTER, &Repeats::default());
        departures.left(1) == 1
    };
    assert!(
        left(Some(7), 50, true, Some(5)),
        "of the one that loaded it"
    );
    assert!(!left(Some(7), 50, false, Some(5)), "rsp was not loaded");
    assert!(left(None, 101, true, Some(5)), "since then");
    assert!(!left(None, 100, true, Some(5)), "with the load itself");
    assert!(!left(None, 101, false, Some(5)));
    // An unknown function is not equal to another one.
    assert!(!left(None, 50, false, None));
    assert!(!left(Some(8), 50, true, None));
}

#[test]
fn a_jump_belongs_to_a_load_64_instructions_before() {
    let mut departures = Departures::default();
    assert!(!departures.is_leaving(100));
    departures.load(Some(5), 100);
    assert!(departures.is_leaving(100) && departures.is_leaving(164));
    assert!(!departures.is_leaving(165));
    departures.leave(Some(5), &AFTER, &Repeats::default());
    assert!(!departures.is_leaving(101), "it is over");
}

#[test]
fn of_1024_outcomes_the_older_half_is_forgotten() {
    let mut departures = Departures::default();
    for outcome in 0..1024 {
        departures.learn(outcome, &right());
        departures.meet(outcome, Some(5), 1);
    }
    let mut full = Departures::default();
    std::mem::swap(&mut full.given, &mut departures.given);
    std::mem::swap(&mut full.seen, &mut departures.seen);
    std::mem::swap(&mut full.remembered, &mut departures.remembered);
    full.meet(2000, Some(5), 1);
    full.leave(Some(5), &AFTER, &Repeats::default());
    assert_eq!((full.left(511), full.left(512), full.left(1023)), (0, 1, 1));
    let mut departures = Departures::default();
    for outcome in 0..1024 {
        departures.learn(outcome, &right());
        departures.meet(outcome, Some(5), 1);
    }
    departures.leave(Some(5), &AFTER, &Repeats::default());
    assert_eq!((departures.left(0), departures.left(1023)), (1, 1));
}

#[test]
fn the_values_of_4096_outcomes_are_remembered() {
    let mut departures = Departures::default();
    for outcome in 0..4097 {
        departures.learn(outcome, &right());
    }
    for outcome in [4095, 4096] {
        departures.meet(outcome, Some(5), 1);
    }
    departures.leave(Some(5), &AFTER, &Repeats::default());
    assert_eq!((departures.left(4095), departures.left(4096)), (1, 0));
    // Each has a number and a list of registers and values.
    let bytes = departures.bytes();
    assert!((4095 * 24..4096 * 256).contains(&bytes), "{bytes}");
    let maps = departures.given.allocation_size() + departures.left.allocation_size();
    assert_eq!(bytes, departures.seen.capacity() * size_of::<Seen>() + maps);
}

/// Outcomes of repeats are forgotten and met like those that are met one by one.
#[test]
fn a_repeat_stands_for_its_outcomes() {
    let key = Key::new(1, |_| 1);
    let mut repeats = Repeats::default();
    let mut first = NONE;
    let outcomes: Vec<u32> = (0..48).collect();

    // Each comes after one whose values are not remembered.
    let all: Vec<u32> = outcomes.iter().flat_map(|&o| [100 + o, o]).collect();
    let outcome = |o| (true, outcomes.contains(&o));
    let id = repeats.add(&mut first, (key, 96), &all, outcome);
    let id = id.expect("the first one");
    assert_eq!(repeats.remembered(id).collect::<Vec<_>>(), [(0, 48)]);

    // 1,024 outcomes are remembered, which are 21 rounds of 48 and a part of one: these are below,
    // around and far above that bound.
    for rounds in [1, 21, 22, 23, 32, 33, 100] {
        let [mut together, mut single] = [(); 2].map(|()| Departures::default());
        for departures in [&mut together, &mut single] {
            outcomes.iter().for_each(|&o| departures.learn(o, &right()));
        }

        // Of every third one another function leaves in between.
        let mut meet = |rounds: std::ops::Range<u64>| {
            for round in rounds {
                let number = round * 48;
                let function = Some(if round % 3 == 1 { 6 } else { 5 });
                together.meet_all((Outcomes::Repeat(id), 48), function, number);
                for (&outcome, at) in outcomes.iter().zip(number..) {
                    single.meet(outcome, function, at);
                }
                assert_eq!(together.count(), single.seen.len());
            }
            for departures in [&mut together, &mut single] {
                departures.leave(Some(6), &Cpu { rsp: 8, ..AFTER }, &repeats);
            }
            assert_eq!(together.count(), single.seen.len());
        };

        meet(0..rounds);
        meet(rounds..rounds + 9);
        assert_eq!(together.left(7), 0);

        for departures in [&mut together, &mut single] {
            departures.leave(Some(5), &AFTER, &repeats);
        }

        for &outcome in &outcomes {
            let left = [&together, &single].map(|all| all.left(outcome));
            assert_eq!(left[0], left[1], "{outcome} after {rounds} rounds");
            assert!(left[0] > 0);
        }

        assert_eq!(together.count(), 0);
    }
}

/// What was forgotten before a function was called is not missed when it leaves.
#[test]
fn a_bound_is_reached_if_the_function_met_what_is_forgotten() {
    let bounds = |call: u64, outcomes: u32| {
        let mut departures = Departures::default();
        for outcome in 0..outcomes {
            departures.learn(outcome, &right());
            departures.refuse(&right());
            departures.meet(outcome, Some(call), 100 + u64::from(outcome));
        }
        departures.leave(Some(call), &AFTER, &Repeats::default());
        departures.bounds()
    };
    assert!(!bounds(50, 1024).are_reached());
    assert_eq!(bounds(50, 1025).forgotten, 1);
    // Those of instructions 100 to 611 are forgotten.
    assert_eq!(bounds(611, 1025).forgotten, 0);
    let full = bounds(50, 4098);
    assert_eq!((full.not_remembered, full.are_reached()), (3, true));
}
