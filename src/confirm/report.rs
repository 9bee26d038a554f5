//! What came of it, in words and in numbers.

use super::{Judgement, Resumed};
use crate::names::Location;
use crate::run::EXPECTED_TO_ERR;
use crate::text::plural;
use std::fmt::Write as _;
use unwind_sim_emulator::linux::system_call_name;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::chain::Frame;
use unwind_sim_unwind::image::AddressSpace;

/// How far a resumed thread came.
pub fn resumed_text(space: &AddressSpace, resumed: &Resumed) -> String {
    let (n, returns) = (resumed.instructions, resumed.returns.len());
    let place = Location::at(space, resumed.rip);
    let mut out = format!(
        "resumed: {n} instruction{}, {returns} return{} out of the stack; stopped at {:#x} {place}: {}\n",
        plural(n),
        plural(returns as u64),
        resumed.rip,
        resumed.end
    );
    let assumed: u64 = resumed.assumed.values().sum();
    if assumed > 0 {
        let of = |(&number, count): (&u64, &u64)| format!("{} {count}", call_name(number));
        let calls: Vec<String> = resumed.assumed.iter().map(of).collect();
        let _ = writeln!(
            out,
            "  {assumed} assumed result{} of system calls: {}; {} interrupted",
            plural(assumed),
            calls.join(", "),
            resumed.interrupted
        );
    }
    out
}

/// A system call's name, or its number.
pub(crate) fn call_name(number: u64) -> String {
    system_call_name(number).map_or_else(|| number.to_string(), str::to_owned)
}

/// What is known of a chain's frames, in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Frames that can be returned to: all but the first.
    pub callers: u64,
    /// Those that were.
    pub confirmed: u64,
    /// Those of them that were after the result of a system call had been assumed.
    pub confirmed_assumed: u64,
    /// Those that were passed by.
    pub contradicted: u64,
    /// Those of which nothing is known.
    pub unjudged: u64,
}

impl Counts {
    /// Of the judgements of all frames of a chain.
    pub fn of(judged: &[Judgement]) -> Counts {
        let mut counts = Counts {
            callers: judged.len().saturating_sub(1) as u64,
            ..Counts::default()
        };
        for judgement in judged {
            match judgement {
                Judgement::Confirmed(assumed) => {
                    counts.confirmed += 1;
                    counts.confirmed_assumed += u64::from(*assumed > 0);
                }
                Judgement::Contradicted(_) => counts.contradicted += 1,
                Judgement::Unjudged => counts.unjudged += 1,
            }
        }
        // Nobody returns to the first frame.
        counts.unjudged = counts.unjudged.saturating_sub(1);
        counts
    }
}

/// What is known of a chain's frames, in a line, and a line for each that is contradicted.
pub fn judgement_text(space: &AddressSpace, frames: &[Frame], judged: &[Judgement]) -> String {
    let Counts {
        callers,
        confirmed,
        confirmed_assumed,
        contradicted,
        unjudged,
    } = Counts::of(judged);
    let behind = match confirmed_assumed {
        0 => String::new(),
        n => format!(" ({n} behind assumed results)"),
    };
    let mut out = format!(
        "  of {callers} caller{}: {confirmed} confirmed{behind}, {contradicted} contradicted, {unjudged} unjudged\n",
        plural(callers),
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
    pub(crate) confirmed: u64,
    pub(crate) unexpected: u64,
    pub(crate) contradicted: u64,
}

impl Tally {
    /// Counts what is known of a chain of this unwinder.
    pub fn add(&mut self, unwinder: &str, judged: &[Judgement]) {
        let plain = unwinder.split([':', '+']).next().unwrap_or(unwinder);
        for judgement in judged {
            match judgement {
                Judgement::Confirmed(_) => self.confirmed += 1,
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
