//! Rows that describe the frame that the code is about to jump to, like those of `longjmp`,
//! `setcontext` and `__builtin_eh_return`.
//!
//! Such code takes registers from a buffer, or writes them into its own save slots, and its rows
//! describe the state after the jump before it happens. It is recognized by its effect: rsp is
//! loaded so that frames are left, or a modified return address is used, and after the jump the
//! registers are those that the row gave.

use super::repeats::Repeats;
use crate::check::Contradiction;
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::ops::Range;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::truth::Cpu;

/// The maximum number of outcomes that are remembered until their function is left.
const SEEN_MAX: u64 = 1024;
/// The maximum number of outcomes whose values are remembered.
const GIVEN_MAX: usize = 4096;
/// The maximum number of instructions from the load of rsp to the jump.
const TO_JUMP_MAX: u64 = 64;

/// Wrong outcomes.
#[derive(Clone, Copy)]
pub(super) enum Outcomes {
    /// One, by its number.
    One(u32),
    /// Those of a repeat whose values are remembered.
    Repeat(u32),
}

/// Wrong outcomes of one call of a function.
struct Seen {
    outcomes: Outcomes,
    activation: Activation,
    /// The number of the first instruction.
    number: u64,
    /// The position of the first one among all that were met.
    start: u64,
}

/// The number of the instruction that called the frame's function.
pub(super) type Activation = Option<u64>;

/// The wrong outcomes of functions that have not returned yet.
#[derive(Default)]
pub(super) struct Departures {
    seen: VecDeque<Seen>,
    /// The position of the first outcome that is not forgotten, and that of the next one to come.
    remembered: Range<u64>,
    /// By outcome, what the row gave when it was first met.
    given: HashMap<u32, Vec<(Reg, u64)>>,
    /// By outcome, how often its function then left as its row says.
    left: HashMap<u32, u64>,
    /// The function that loaded rsp, and the number of the instruction.
    leaving: Option<(Activation, u64)>,
}

impl Departures {
    /// Whether the values of a new outcome will be remembered. If not, it is no matter in which
    /// function the outcome is met.
    pub(super) fn learns(&self, found: &[Contradiction]) -> bool {
        let is_given = |c: &Contradiction| c.given.is_some() && !c.misread;
        !self.is_full() && !found.is_empty() && found.iter().all(is_given)
    }

    /// Whether no more values can be remembered.
    pub(super) fn is_full(&self) -> bool {
        self.given.len() >= GIVEN_MAX
    }

    /// Records the values of a new outcome.
    pub(super) fn learn(&mut self, outcome: u32, found: &[Contradiction]) {
        if self.learns(found) {
            let given = found.iter().filter_map(|c| Some((c.reg, c.given?)));
            self.given.insert(outcome, given.collect());
        }
    }

    /// Records that an outcome was met in the frame of a function.
    #[inline]
    pub(super) fn meet(&mut self, outcome: u32, activation: Activation, number: u64) {
        self.meet_all((Outcomes::One(outcome), 1), activation, number);
    }

    /// Records that so many outcomes were met, at instructions from `number` on.
    #[inline]
    pub(super) fn meet_all(
        &mut self,
        (outcomes, count): (Outcomes, usize),
        activation: Activation,
        number: u64,
    ) {
        self.seen.push_back(Seen {
            outcomes,
            activation,
            number,
            start: self.remembered.end,
        });
        self.remembered.end += count as u64;
        if self.remembered.end - self.remembered.start > SEEN_MAX {
            self.forget();
        }
    }

    /// Forgets the first outcomes.
    #[cold]
    fn forget(&mut self) {
        let Range { start, end } = &mut self.remembered;
        while *end - *start > SEEN_MAX {
            *start += SEEN_MAX / 2;
        }
        let later = self.seen.partition_point(|seen| seen.start <= *start);
        // The last one before may be forgotten in part.
        self.seen.drain(..later.saturating_sub(1));
    }

    /// Records that instruction `number` of a function loaded rsp so that frames are left.
    pub(super) fn load(&mut self, function: Activation, number: u64) {
        self.leaving = Some((function, number));
    }

    /// Whether a jump at instruction `number` completes such a load.
    pub(super) fn is_leaving(&self, number: u64) -> bool {
        self.leaving
            .is_some_and(|(_, load)| number - load <= TO_JUMP_MAX)
    }

    /// Records that `function` has left by a jump; `after` is the state after it.
    pub(super) fn leave(&mut self, function: Activation, after: &Cpu, repeats: &Repeats) {
        let (loader, load) = self.leaving.take().unwrap_or((None, u64::MAX));
        let is_met = |seen: &Seen| {
            let activation = seen.activation;
            let is_its = activation.is_some() && [function, loader].contains(&activation);
            // A load is in no repeat.
            is_its || seen.number > load
        };
        let value = |reg| match reg {
            Reg::Rip => Some(after.rip),
            Reg::Rsp => Some(after.rsp),
            reg => {
                let at = Reg::CALLEE_SAVED.iter().position(|&r| r == reg)?;
                Some(after.saved[at])
            }
        };
        let Departures {
            seen,
            remembered,
            given,
            left,
            ..
        } = self;
        let mut met = Vec::new();
        let ends = seen.iter().skip(1).map(|next| next.start);
        let ends: Vec<u64> = ends.chain([remembered.end]).collect();
        let mut ends = ends.into_iter();
        remembered.end = remembered.start;
        seen.retain_mut(|seen| {
            let forgotten = remembered.start.saturating_sub(seen.start);
            let start = seen.start + forgotten;
            let end = ends.next().unwrap_or(start);
            if !is_met(seen) {
                seen.start = remembered.end - forgotten;
                remembered.end += end - start;
                return true;
            }
            match seen.outcomes {
                Outcomes::One(outcome) => met.push(outcome),
                Outcomes::Repeat(id) => {
                    let all = repeats.outcomes(id).iter().copied();
                    let remembered =
                        all.filter(|id| given.contains_key(id) || left.contains_key(id));
                    met.extend(remembered.skip(forgotten as usize));
                }
            }
            false
        });
        for outcome in met {
            let known = given.get(&outcome);
            if known.is_some_and(|g| g.iter().all(|&(reg, given)| value(reg) == Some(given))) {
                given.remove(&outcome);
                left.insert(outcome, 1);
            } else if let Some(count) = left.get_mut(&outcome) {
                *count += 1;
            }
        }
    }

    /// How often the function of an outcome then left as its row says.
    pub(super) fn left(&self, outcome: u32) -> u64 {
        self.left.get(&outcome).copied().unwrap_or(0)
    }

    /// The heap memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let maps = self.given.allocation_size() + self.left.allocation_size();
        self.seen.capacity() * size_of::<Seen>() + maps
    }
}

#[cfg(test)]
mod tests;
