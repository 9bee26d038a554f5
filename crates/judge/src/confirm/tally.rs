//! Counts of confirmed and contradicted frames.

use super::Judgement;
use crate::unwinders::may_err;
use unwind_sim_emulator::linux::system_call_name;

/// The counts for the frames of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Frames that can be returned to: all except the first.
    pub callers: u64,
    /// Frames that execution returned to.
    pub confirmed: u64,
    /// Confirmed frames that were reached after the result of a system call was assumed.
    pub confirmed_assumed: u64,
    /// Frames that execution bypassed.
    pub contradicted: u64,
    /// Frames about which nothing is known.
    pub unjudged: u64,
}

impl Counts {
    /// Counts the judgements on the frames of a chain.
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
        // The first frame is not returned to.
        counts.unjudged = counts.unjudged.saturating_sub(1);
        counts
    }
}

/// The totals of all chains.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Frames that execution returned to.
    pub confirmed: u64,
    /// Contradicted frames of unwinders that are not expected to err.
    pub unexpected: u64,
    /// Frames that execution bypassed.
    pub contradicted: u64,
}

impl Tally {
    /// Adds the judgements on a chain of this unwinder.
    pub fn add(&mut self, unwinder: &str, judged: &[Judgement]) {
        for judgement in judged {
            match judgement {
                Judgement::Confirmed(_) => self.confirmed += 1,
                Judgement::Unjudged => {}
                Judgement::Contradicted(_) => {
                    self.contradicted += 1;
                    self.unexpected += u64::from(!may_err(unwinder));
                }
            }
        }
    }

    /// Whether any frame was judged.
    pub fn judged(&self) -> bool {
        self.confirmed + self.contradicted > 0
    }

    /// Whether a frame was contradicted whose unwinder is not expected to err.
    pub fn unexpected(&self) -> bool {
        self.unexpected > 0
    }
}

/// A system call's name, or its number.
pub fn call_name(number: u64) -> String {
    system_call_name(number).map_or_else(|| number.to_string(), str::to_owned)
}
