//! The lines written are those of the serializer, whatever the unwinder.

use super::texts::hex;
use super::*;
use crate::json;
use std::sync::Arc;
use unwind_sim_judge::input::Input;
use unwind_sim_judge::run::Against;
use unwind_sim_judge::{compare::GroupBy, engine::Setting, spec};
use unwind_sim_recordings::trace::Trace;
use unwind_sim_recordings::view::Filter;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::chain::{FoundBy, Sink as _, Word};
use unwind_sim_unwind::image::{Image, ImageParts, Mapping};
use unwind_sim_unwind::reason::Reason;
use unwind_sim_unwind::rule::RuleKind;

/// Small recordings: each has frames that another unwinder finds in another way.
const RECORDINGS: [&[u8]; 10] = [
    include_bytes!("../../../corpus/traces/demo-fp.bin"),
    include_bytes!("../../../corpus/traces/demo-dwarf.bin"),
    include_bytes!("../../../corpus/traces/demo-orc.bin"),
    include_bytes!("../../../corpus/traces/demo-sframe.bin"),
    include_bytes!("../../../corpus/traces/demo-lbr.bin"),
    include_bytes!("../../../corpus/traces/demo-guess.bin"),
    include_bytes!("../../../corpus/traces/seed-004.bin"),
    include_bytes!("../../../corpus/traces/demo-copy.bin"),
    include_bytes!("../../../corpus/traces/demo-wrong-row.bin"),
    include_bytes!("../../../corpus/traces/demo-deadlock.bin"),
];

fn input(recording: &'static [u8]) -> Input {
    Input::from_trace(Trace::from_bytes(recording).expect("a trace"))
}

fn run(names: &[&str]) -> Run {
    let engine = |name: &&str| spec::engine(name).expect("an unwinder");
    Run {
        engines: names.iter().map(engine).collect(),
        variants: Vec::new(),
        setting: Setting::default(),
        against: Against::Truth,
        group_by: GroupBy::Cause,
    }
}

/// The line, which must be that of the serializer.
fn line(
    writer: &mut ChainWriter<'_>,
    name: &str,
    view: &View<'_>,
    column: usize,
    outcome: &Outcome,
) -> String {
    let mut written = Vec::new();
    let done = writer.describe(view, column, outcome, &mut written);
    done.expect("it is written");
    let start = writer.columns[column].0.variant_for(view).as_str();
    let line =
        serde_json::to_string(&json::chain(view, name, start, outcome)).expect("it is written");
    assert_eq!(String::from_utf8_lossy(&written), line.clone() + "\n");
    line
}

#[test]
fn lines_are_those_of_the_serializer() {
    // One of each way to find a frame, and two with fallbacks.
    let names = [
        "dwarf",
        "sframe",
        "orc",
        "fp",
        "guess",
        "lbr",
        "dwarf+fp",
        "sframe+fp",
    ];

    let run = run(&names);
    // One writer for all: what it keeps must not serve another recording.
    let mut writer = ChainWriter::new(&run);

    for (number, recording) in RECORDINGS.iter().enumerate() {
        let mut lines = 0;
        let done = run.for_each(
            &input(recording),
            &Filter::default(),
            &mut |view, column, outcome| {
                // Compares with what serde writes for the same chain.
                line(&mut writer, names[column], view, column, outcome);
                lines += 1;
                Ok(())
            },
        );
        done.expect("it is read");
        assert!(lines > 0, "recording {number}");
    }
}

/// Changes how frame 1 was found.
fn change_rule(chain: &mut Chain, change: fn(&mut Row, &mut Vec<Word>)) {
    let (frames, before) = (chain.frames.len(), chain.clone());
    chain.frames.clear();
    for (index, mut step) in before.steps().enumerate() {
        let How::Rule { row, words } = step.how else {
            chain.frame(step);
            continue;
        };
        let (mut row, mut words) = (row.row(), words.to_vec());
        if index == 1 {
            change(&mut row, &mut words);
        }
        let (row, words) = (RowRef::from(&row), &words[..]);
        step.how = How::Rule { row, words };
        chain.frame(step);
    }
    assert!(chain.frames.len() == frames && *chain != before);
}

/// What is like the last chain's is not written anew: so each thing that may differ must be seen.
#[test]
fn a_chain_that_differs_from_the_last_is_written_anew() {
    // Each change is to one thing that the text of a line depends on.
    let changes: [fn(&mut Outcome); 15] = [
        |outcome| outcome.verdict = Verdict::Looped,
        |outcome| outcome.ground.known += 1,
        |outcome| outcome.unjudged = Some(Unjudged::NoTruth),
        |outcome| outcome.chain.end = Reason::NotAtRoot.into(),
        |outcome| outcome.chain.end.fallback = Some(Reason::NotAtRoot),
        |outcome| outcome.chain.refused = true,
        |outcome| outcome.chain.events.clear(),
        |outcome| outcome.chain.frames.truncate(2),
        |outcome| outcome.chain.frames.rotate_left(1),
        |outcome| outcome.chain.frames.last_mut().expect("a frame").sp += 8,
        |outcome| outcome.chain.frames[1].pc = CodeAddress::Instruction(0x1234),
        |outcome| outcome.chain.frames[1].found = FoundBy::Guess,
        |outcome| change_rule(&mut outcome.chain, |_, words| words.clear()),
        |outcome| change_rule(&mut outcome.chain, |row, _| row.source.row_offset += 1),
        |outcome| {
            change_rule(&mut outcome.chain, |row, _| {
                row.rule.kind = RuleKind::Signal
            })
        },
    ];

    let run = run(&["dwarf"]);
    let mut writer = ChainWriter::new(&run);
    let mut seen = 0;
    let input = input(RECORDINGS[0]);
    let done = run.for_each(&input, &Filter::default(), &mut |view, column, outcome| {
        // The changes need a chain with an inner, a middle and an outer frame.
        if outcome.chain.frames.len() < 3 {
            return Ok(());
        }

        seen += 1;
        for (i, change) in changes.iter().enumerate() {
            let mut line = |outcome: &Outcome| line(&mut writer, "dwarf", view, column, outcome);

            let before = line(outcome);
            let mut changed = outcome.clone();
            change(&mut changed);
            assert_ne!(line(&changed), before, "change {i}");
            // And back again: a writer that keeps too much would write the changed chain.
            assert_eq!(line(outcome), before, "change {i}");
        }
        Ok(())
    });

    done.expect("it is read");
    assert!(seen > 0);
}

/// The text of an address without an image must not stay when one is mapped there.
#[test]
fn what_is_mapped_later_is_named() {
    let image = Image::new(ImageParts {
        name: "library".to_owned(),
        ..ImageParts::default()
    });

    // A frame at an address where nothing is mapped yet.
    let mut chain = Chain::default();
    chain.frame(Step {
        pc: CodeAddress::Instruction(0x1234),
        sp: 0x7000,
        slot: None,
        how: How::Guess,
    });

    let mut space = AddressSpace::new();
    let (mut frames, mut texts) = (CachedFrames::default(), Texts::default());
    let mut text = |space: &AddressSpace, frames: &mut CachedFrames| {
        let mut out = Vec::new();
        let done = frames.write(&mut texts, space, &chain, &mut out);
        done.expect("it is written");
        String::from_utf8_lossy(&out).into_owned()
    };

    assert!(!text(&space, &mut frames).contains("library"));
    space.map(Mapping {
        range: 0x1000..0x2000,
        bias: 0,
        image: Some(Arc::new(image)),

        name: "library".to_owned(),
    });
    // Neither the frames of the last chain nor the places of all chains.
    assert!(text(&space, &mut frames).contains("library"));
    assert!(text(&space, &mut CachedFrames::default()).contains("library"));
}

#[test]
fn numbers_are_written_as_elsewhere() {
    for value in [
        0,
        1,
        0xf,
        0x10,
        0xff,
        0x100,
        0x7fff_ffff_e7f0,
        1 << 63,
        u64::MAX,
    ] {
        let mut out = Vec::new();
        hex(value, &mut out);
        let wanted = format!("\"{}\"", unwind_sim_judge::hex::hex(value));
        assert_eq!(String::from_utf8_lossy(&out), wanted);
    }
}
