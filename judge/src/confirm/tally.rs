//! Confirmed and contradicted frames, counted.

use super::Judgement;
use crate::run::EXPECTED_TO_ERR;
use unwind_sim_emulator::linux::system_call_name;

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

/// The sums of all chains.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Frames that were returned to.
    pub confirmed: u64,
    /// Contradicted frames of unwinders that are not expected to err.
    pub unexpected: u64,
    /// Frames that were passed by.
    pub contradicted: u64,
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

/// A system call's name, or its number.
pub fn call_name(number: u64) -> String {
    system_call_name(number).map_or_else(|| number.to_string(), str::to_owned)
}
