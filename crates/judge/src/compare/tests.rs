//! Tests of which outcomes are grouped, by what, and when anything was judged.

use super::*;
use crate::diagnose::Diagnosis;
use std::sync::Arc;
use unwind_sim_recordings::model::{RecordedChain, Sample};
use unwind_sim_unwind::chain::{Chain, FoundBy, Frame};
use unwind_sim_unwind::image::{AddressSpace, Image, ImageParts, Mapping, Symbol};
use unwind_sim_unwind::regs::Regs;
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::{TrueFrame, TrueKind, Truth};
use unwind_sim_unwind::verdict::Ground;

const MAIN: u64 = 0x40_1000;
/// An address in no mapping.
const NOWHERE: u64 = 0x7777;

fn sample(rip: u64) -> Sample<'static> {
    Sample::of_regs(SampleRegs::hardware(Regs::frame(rip, 0, 0)))
}

/// A program with `main` of 64 bytes at [`MAIN`].
fn space() -> AddressSpace {
    let image = Image::new(ImageParts {
        name: "/usr/bin/program".into(),
        symbols: vec![Symbol {
            address: MAIN,
            size: 64,
            name: "main".into(),
        }],
        ..ImageParts::default()
    });
    let mut space = AddressSpace::new();
    space.map(Mapping {
        range: MAIN..MAIN + 0x1000,
        bias: 0,
        image: Some(Arc::new(image)),
        name: "/usr/bin/program".into(),
    });
    space
}

fn outcome(verdict: Verdict, diagnosis: Option<(Code, u64)>) -> Outcome {
    let chain = Chain::ended(Reason::NoRow { pc: 1 });
    let diagnosis = diagnosis.map(|(code, pc)| Diagnosis {
        code,
        frame: 3,
        pc: CodeAddress::Instruction(pc),
        contradiction: None,
    });
    Outcome {
        whole: None,
        chain,
        verdict,
        ground: Ground::default(),
        unjudged: None,
        from: 0,
        diagnosis,
    }
}

/// The only group after these outcomes of samples at `rip`.
fn grouped(outcomes: &[Outcome], rip: u64, by: GroupBy) -> Option<(GroupKey, Group)> {
    let (sample, space) = (sample(rip), space());
    let mut comparison = Comparison::new(2);
    for (outcome, number) in outcomes.iter().zip(5..) {
        let view = View {
            number,
            sample: &sample,
            space: &space,
            pristine: None,
            stitched: &[],
            world: None,
        };
        comparison.add(1, &view, outcome, by);
    }
    let counts = comparison.tallies.iter().map(|t| t.counts.iter().sum());
    let counts: Vec<u64> = counts.collect();
    assert_eq!(counts, [0, outcomes.len() as u64]);
    assert!(comparison.groups.len() <= 1, "{:?}", comparison.groups);
    comparison.groups.pop_first()
}

#[test]
fn groups_are_named_and_found_by_their_name() {
    for (by, name) in [
        (GroupBy::Cause, "cause"),
        (GroupBy::Function, "function"),
        (GroupBy::Instruction, "insn"),
    ] {
        assert_eq!(by.as_str(), name);
        assert_eq!(GroupBy::from_name(name), Some(by));
    }
    assert_eq!(GroupBy::from_name(""), None);
}

#[test]
fn what_is_wrong_unsupported_or_diagnosed_makes_a_group() {
    let cause = Some((Code::WrongCfa, MAIN));
    let group = |verdict, diagnosis| {
        let found = grouped(&[outcome(verdict, diagnosis)], MAIN, GroupBy::Cause);
        found.map(|(key, group)| (key.letter, key.code, group.frame))
    };
    assert_eq!(group(Verdict::Ok, None), None);
    assert_eq!(group(Verdict::Unjudged, None), None);
    // A latent error.
    let found = Some(('.', Code::WrongCfa, 3));
    assert_eq!(group(Verdict::Ok, cause), found);
    let wrong = Verdict::Wrong { at: 4 };
    assert_eq!(group(wrong, cause), Some(('w', Code::WrongCfa, 3)));
    // Without a diagnosis the group is how the walk ended, at the sampled instruction.
    assert_eq!(group(wrong, None), Some(('w', Code::NoRow, 0)));
    let unsupported = Some(('u', Code::NoRow, 0));
    assert_eq!(group(Verdict::Unsupported, None), unsupported);
}

#[test]
fn a_group_has_its_place_as_far_as_it_is_one() {
    let place = |pc, by| {
        let wrong = outcome(Verdict::Wrong { at: 1 }, Some((Code::WrongCfa, pc)));
        grouped(&[wrong], MAIN, by).and_then(|(key, _)| key.place)
    };
    let (function, instruction) = (GroupBy::Function, GroupBy::Instruction);
    assert_eq!(place(MAIN + 5, GroupBy::Cause), None);
    let main = Some("main (program)");
    assert_eq!(place(MAIN + 5, function).as_deref(), main);
    assert_eq!(place(MAIN + 5, instruction).as_deref(), Some("main+0x5"));
    // After the function's end, and in no image.
    let behind = Some("program+0x401040");
    assert_eq!(place(MAIN + 64, function).as_deref(), behind);
    assert_eq!(place(NOWHERE, function).as_deref(), Some("0x7777"));
}

#[test]
fn a_group_counts_its_samples_and_shows_the_first() {
    let wrong = |at| outcome(Verdict::Wrong { at }, Some((Code::WrongCfa, MAIN)));
    let found = grouped(&[wrong(1), wrong(2), wrong(3)], MAIN, GroupBy::Cause);
    let (key, group) = found.expect("a group");
    assert_eq!((key.column, key.letter), (1, 'w'));
    assert_eq!((group.count, group.sample), (3, 5));
    assert_eq!(group.verdict, Verdict::Wrong { at: 1 });
}

#[test]
fn what_a_derived_table_cannot_hold_is_a_loss_where_the_walk_ended_there() {
    let class = |verdict, reason: Reason| {
        let mut one = outcome(verdict, None);
        one.chain.end = reason.into();
        class_of(&one)
    };
    let not_held = Reason::NotHeld { what: "a rule" };
    let (cut, wrong) = (Verdict::Truncated { at: 1 }, Verdict::Wrong { at: 1 });
    assert_eq!(class(cut, not_held), Class::Loss);
    assert_eq!(class(wrong, not_held), Class::Wrong);
    assert_eq!(class(cut, Reason::NoRow { pc: 1 }), Class::Wrong);
}

#[test]
fn the_groups_of_a_column_are_in_order_of_class_and_size() {
    let group = |count| Group {
        count,
        sample: 0,
        verdict: Verdict::Unjudged,
        frame: 0,
        location: Location::at(&AddressSpace::new(), 1),
        row: None,
        values: None,
    };

    let key = |column, class, letter| GroupKey {
        column,
        class,
        letter,
        code: Code::WrongCfa,
        place: None,
    };

    let mut comparison = Comparison::new(2);
    comparison.groups = BTreeMap::from([
        // Of another column: it must not appear.
        (key(0, Class::Wrong, 'w'), group(9)),
        (key(1, Class::Loss, 't'), group(7)),
        (key(1, Class::Wrong, 'm'), group(1)),
        (key(1, Class::Wrong, 'w'), group(2)),
    ]);

    let counts = comparison.column_groups(1);
    let counts: Vec<_> = counts.into_iter().map(|(_, g)| g.count).collect();
    assert_eq!(counts, [2, 1, 7]);
}

/// What the column `judged` says and what the exit status says must agree.
#[test]
fn something_is_judged_if_a_chain_is() {
    let judged = |tallies: &[Tally]| {
        let comparison = Comparison {
            tallies: tallies.to_vec(),
            ..Comparison::default()
        };
        comparison.judged()
    };
    let tally = |verdict, known| {
        let mut tally = Tally::default();
        let mut one = outcome(verdict, None);
        one.ground.known = known;
        tally.add(&one);
        tally
    };
    let nothing = tally(Verdict::Unjudged, 1);
    let part = tally(Verdict::Unjudged, 2);
    let chain = tally(Verdict::Wrong { at: 0 }, 1);
    assert!(!judged(&[]));
    assert!(!judged(&[nothing.clone(), part]));
    assert!(judged(&[nothing, chain]));
}

/// Chains of the kernel's own unwinder, each beside the same walk and the same truth.
#[test]
fn what_the_kernel_said_is_counted_beside_a_column_and_the_truth() {
    let pcs = [MAIN + 8, MAIN + 16, MAIN + 24];
    let mut outcome = outcome(Verdict::Ok, None);
    outcome.from = 1;
    outcome.chain.frames = pcs[1..]
        .iter()
        .map(|&pc| Frame {
            pc: CodeAddress::Return(pc),
            sp: 0,
            slot: None,
            found: FoundBy::Start,
        })
        .collect();
    let frames = pcs.map(|pc| TrueFrame {
        pc,
        cfa: 0,
        kind: TrueKind::Call,
        saved: None,
    });

    // The frames before the one that the walk should start with are not the kernel's, either.
    let (right, other) = (pcs[1..].to_vec(), vec![MAIN + 16]);
    let complete = Truth::Complete(frames.to_vec());
    let known = Truth::Known(frames.to_vec());
    let space = space();
    let mut comparison = Comparison::new(2);
    for (source, ips, truth) in [
        ("kernel", &right, &complete),
        ("kernel", &other, &complete),
        ("kernel", &right, &known),
        ("perf", &right, &complete),
    ] {
        let sample = Sample {
            truth: truth.clone(),
            recorded: vec![RecordedChain {
                source: source.to_owned(),
                ips: ips.clone(),
                request: None,
            }],
            ..sample(MAIN)
        };
        let view = View {
            number: 0,
            sample: &sample,
            space: &space,
            pristine: None,
            stitched: &[],
            world: None,
        };
        comparison.add(1, &view, &outcome, GroupBy::Cause);
    }
    let expected = KernelSaid {
        chains: 3,
        same: 2,
        known: 2,
        right: 1,
    };
    assert_eq!(comparison.said, [KernelSaid::default(), expected]);

    // Comparisons of parts are added.
    let part = comparison.clone();
    comparison.merge(part);
    let KernelSaid { chains, right, .. } = comparison.said[1];
    assert_eq!((chains, right), (6, 2));
}
