//! The words of a frame, and a sink without events.

use super::*;
use crate::row::{Row, RowSource, TableKind};
use crate::rule::Rule;
use alloc::format;

fn word(address: u64) -> Word {
    let value = 2 * address;
    Word { address, value }
}

#[test]
fn words_are_those_that_were_pushed() {
    let mut words = ReadWords::new();
    assert!(words.is_empty());
    for address in 1..=3 {
        words.push(word(address));
    }
    let all = [1, 2, 3].map(word);
    assert!((&words).into_iter().eq(&all));
    assert_eq!(format!("{words:?}"), format!("{all:?}"));
    let mut others = words;
    assert_eq!(words, others);
    others.push(word(4));
    assert_ne!(words, others);
    others.clear();
    assert_eq!(others, ReadWords::default());
    // Words from before `clear` do not matter.
    for address in [1, 2, 9] {
        others.push(word(address));
    }
    assert_ne!(words, others);
}

#[test]
fn an_emptied_chain_is_like_a_new_one() {
    let mut chain = Chain::ended(Reason::RootReached);
    chain.refused = true;
    let how = How::Guess;
    let pc = CodeAddress::Return(1);
    chain.frame(Step {
        pc,
        sp: 2,
        slot: Some(3),
        how,
    });
    chain.event(Event::StackChanged { from: 1, to: 2 });
    chain.words.push(word(1));
    assert!(!chain.frames.is_empty() && !chain.events.is_empty());
    chain = chain.emptied();
    assert_eq!(chain, Chain::default());
    assert!(chain.words.is_empty());
}

fn step(sp: u64, slot: Option<u64>, how: How<'_>) -> Step<'_> {
    let pc = CodeAddress::Return(1);
    Step { pc, sp, slot, how }
}

#[test]
fn chains_are_equal_if_all_is_found_alike() {
    let row = Row {
        rule: Rule::FRAME_POINTER,
        source: RowSource {
            table: TableKind::EhFrame,
            image: None,
            unit_offset: 1,
            row_offset: 2,
            start: 3,
            end: 4,
            fallback: None,
        },
    };

    let other_rule = Row {
        rule: Rule::OUTERMOST,
        ..row
    };
    let other_source = Row {
        source: RowSource {
            end: 5,
            ..row.source
        },
        ..row
    };

    let words = [1, 2, 3].map(word);
    let rule = |row, words| How::Rule {
        row: RowRef::from(row),
        words,
    };

    // All of them differ from each other.
    let hows = [
        rule(&row, &words[..2]),
        rule(&other_rule, &words[..2]),
        rule(&other_source, &words[..2]),
        rule(&row, &words[1..]),
        rule(&row, &words[..1]),
        rule(&row, &words),
        How::Start,
        How::SampledIp,
        How::Guess,
        How::External,
        How::Branch {
            from: 1,
            stitched: false,
        },
        How::Branch {
            from: 2,
            stitched: false,
        },
        How::Branch {
            from: 1,
            stitched: true,
        },
    ];

    let mut steps: Vec<_> = hows.map(|how| step(2, Some(3), how)).into();
    steps.extend([step(3, Some(3), How::Start), step(2, None, How::Start)]);
    let chain = |steps: &[Step<'_>]| {
        let mut chain = Chain::ended(Reason::RootReached);
        steps.iter().for_each(|&step| chain.frame(step));
        chain
    };

    for (i, &one) in steps.iter().enumerate() {
        for (k, &two) in steps.iter().enumerate() {
            // The row of the second chain's frame is not in the same place.
            let [one, two] = [chain(&[one]), chain(&[steps[1], two])];
            let mut tail = two;
            tail.frames.remove(0);
            assert_eq!(one == tail, i == k, "{i} and {k}");
        }
    }

    // A chain gives back the steps that it was made from.
    let all = chain(&steps);
    assert!(all.steps().eq(steps.iter().copied()));
    assert!(all.steps().rev().eq(steps.iter().rev().copied()));

    let mut changed = all.clone();
    changed.frames.pop();
    assert_ne!(all, changed);
    // What a chain has besides its frames.
    let changes: [fn(&mut Chain); 3] = [
        |chain| chain.end = Reason::NotAtRoot.into(),
        |chain| chain.refused = true,
        |chain| chain.event(Event::StackChanged { from: 1, to: 2 }),
    ];

    for change in changes {
        let mut changed = all.clone();
        change(&mut changed);
        assert_ne!(all, changed);
    }
}
