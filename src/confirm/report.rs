//! What came of it, in words and in numbers.

use super::{Judgement, Resumed};
use crate::names::Location;
use crate::run::EXPECTED_TO_ERR;
use crate::text::plural;
use std::fmt::Write as _;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::chain::Frame;
use unwind_sim_unwind::image::AddressSpace;

/// How far a resumed thread came.
pub fn resumed_text(space: &AddressSpace, resumed: &Resumed) -> String {
    let (n, returns) = (resumed.instructions, resumed.returns.len());
    let place = Location::at(space, resumed.rip);
    format!(
        "resumed: {n} instruction{}, {returns} return{} out of the stack; stopped at {:#x} {place}: {}\n",
        plural(n),
        plural(returns as u64),
        resumed.rip,
        resumed.end
    )
}

/// What is known of a chain's frames, in a line, and a line for each that is contradicted.
pub fn judgement_text(space: &AddressSpace, frames: &[Frame], judged: &[Judgement]) -> String {
    let count = |wanted: fn(&Judgement) -> bool| judged.iter().filter(|j| wanted(j)).count();
    let confirmed = count(|j| *j == Judgement::Confirmed);
    let contradicted = count(|j| matches!(j, Judgement::Contradicted(_)));
    // Nobody returns to the first frame.
    let callers = frames.len().saturating_sub(1);
    let unjudged = count(|j| *j == Judgement::Unjudged).saturating_sub(1);
    let mut out = format!(
        "  of {callers} caller{}: {confirmed} confirmed, {contradicted} contradicted, {unjudged} unjudged\n",
        plural(callers as u64),
    );
    for (index, (frame, judgement)) in frames.iter().zip(judged).enumerate() {
        let Judgement::Contradicted(reached) = judgement else {
            continue;
        };
        let pc = CodeAddress::Return(reached.to);
        let place = Location::of(space, pc);
        let slot = frame.sp.wrapping_sub(8);
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "  frame {index}: it is to be returned to from {slot:#x}, but from {:#x} execution returned to {:#x} {place}",
            reached.slot, reached.to,
        );
    }
    out
}

/// The sums of all chains.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    confirmed: u64,
    unexpected: u64,
    contradicted: u64,
}

impl Tally {
    /// Counts what is known of a chain of this unwinder.
    pub fn add(&mut self, unwinder: &str, judged: &[Judgement]) {
        let plain = unwinder.split([':', '+']).next().unwrap_or(unwinder);
        for judgement in judged {
            match judgement {
                Judgement::Confirmed => self.confirmed += 1,
                Judgement::Unjudged => {}
                Judgement::Contradicted(_) => {
                    self.contradicted += 1;
                    self.unexpected += u64::from(!EXPECTED_TO_ERR.contains(&plain));
                }
            }
        }
    }

    /// Was any frame judged?
    pub fn judged(&self) -> bool {
        self.confirmed + self.contradicted > 0
    }

    /// Was a frame contradicted of an unwinder that is not expected to err?
    pub fn unexpected(&self) -> bool {
        self.unexpected > 0
    }
}
