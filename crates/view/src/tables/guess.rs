//! Both ways of a claim that is wrong on one of them, if that one exists.

use super::names::address;
use super::proof::{claimed, way};

use std::io::{self, Write};
use unwind_sim_tables::file::File;
use unwind_sim_tables::proof::verdict::{Fork, Guess};

/// Writes the way on which a claim is wrong, and where it is left for another.
pub(super) fn write(file: &File, guess: &Guess, out: &mut dyn Write) -> io::Result<()> {
    let place = |at| {
        let mut text = String::new();
        address(file, at, &mut text);
        text
    };

    // If a store is what would make the claim wrong, the way goes through that store.
    let what = match (&guess.claim, guess.store) {
        (Some(claim), Some(store)) => {
            let subject = claimed(claim.subject);
            format!("the row's {subject} is overwritten at {}", place(store))
        }
        (Some(claim), None) => format!("the row's {} is {}", claimed(claim.subject), claim.found),
        (None, _) => "the row is for another frame".to_owned(),
    };

    // The end of the way need not be named again if the last jump leads to it.
    let is_behind = guess.path.last().is_none_or(|jump| jump.1 != guess.pc);
    let behind = guess.store.into_iter().chain(is_behind.then_some(guess.pc));
    let text = way(file, &guess.path, &behind.collect::<Vec<_>>());
    writeln!(out, "    one way: {text}: {what}")?;

    // Without a fork, it is not known where the right way parts from this one.
    let Some(Fork { at, to, other }) = guess.fork else {
        return Ok(());
    };
    let (at, to) = (place(at), place(to));

    // A jump through a register or a table has no other target that could be named.
    match other {
        Some(other) => {
            let other = place(other);
            writeln!(out, "    another: at {at} to {other} instead of {to}")
        }
        None => writeln!(
            out,
            "    another: the jump at {at} leads elsewhere: {to} is a guess"
        ),
    }
}
