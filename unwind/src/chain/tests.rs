//! The words of a frame, and a sink without events.

use super::*;
use alloc::format;

fn word(address: u64) -> Word {
    let value = 2 * address;
    Word { address, value }
}

#[test]
fn words_are_those_that_were_pushed() {
    let mut words = Words::new();
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
    assert_eq!(others, Words::default());
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
    assert!(!chain.frames.is_empty() && !chain.events.is_empty());
    assert_eq!(chain.emptied(), Chain::default());
}
