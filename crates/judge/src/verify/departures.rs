//! Rows that describe the frame that the code is about to jump to, like those of `longjmp`,
//! `setcontext` and `__builtin_eh_return`.
//!
//! Such code takes registers from a buffer, or writes them into its own save slots, and its rows
//! describe the state after the jump before it happens. It is recognized by its effect: rsp is
//! loaded so that frames are left, or a modified return address is used, and after the jump the
//! registers are those that the row gave.
//!
//! Continuations that copy a stack over the present one overwrite the slots of frames that are still
//! there. Their rows describe the frame that is returned to with those values, too.

use super::repeats::Repeats;
use crate::check::{Class, Contradiction};
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::ops::Range;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::truth::Cpu;

/// The maximum number of outcomes of one unwinder that are remembered until their function is left.
const SEEN_MAX: u64 = 1024;
/// The maximum number of outcomes of one unwinder whose values are remembered.
pub(super) const GIVEN_MAX: usize = 4096;
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

/// The wrong outcomes of one unwinder in functions that have not returned yet. Each unwinder has its
/// own, so that what one gets wrong nearly everywhere leaves the bounds of the others alone.
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
    /// The number of the last instruction whose outcomes are forgotten.
    forgotten: Option<u64>,
    /// Where bounds were reached.
    bounds: Bounds,
}

/// How often the bounds of what is remembered were reached. Rows for the frame that is jumped to
/// then count as contradictions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    /// Distinct outcomes whose values were not remembered.
    pub not_remembered: u64,
    /// Jumps out of functions that may have met outcomes that were forgotten by then.
    pub forgotten: u64,
}

impl Bounds {
    /// Whether one was reached.
    pub fn are_reached(self) -> bool {
        self != Bounds::default()
    }
}

impl Departures {
    /// Whether the values of a new outcome will be remembered. If not, it is no matter in which
    /// function the outcome is met.
    pub(super) fn learns(&self, found: &[Contradiction]) -> bool {
        !self.is_full() && may_be_of_target(found)
    }

    /// Whether no more values can be remembered.
    pub(super) fn is_full(&self) -> bool {
        self.given.len() >= GIVEN_MAX
    }

    /// Records that a new outcome would be remembered if there were room.
    pub(super) fn refuse(&mut self, found: &[Contradiction]) {
        if self.is_full() && may_be_of_target(found) {
            self.bounds.not_remembered += 1;
        }
    }

    /// Where bounds were reached.
    pub(super) fn bounds(&self) -> Bounds {
        self.bounds
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
        let forgotten = self.seen.partition_point(|seen| seen.start < *start);
        let last = forgotten.checked_sub(1);
        let last = last.and_then(|last| self.seen.get(last));
        self.forgotten = last.map(|seen| seen.number).max(self.forgotten);
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
        // A function meets outcomes only behind the call of it.
        let calls = [function, loader].into_iter().flatten();
        if let Some(forgotten) = self.forgotten
            && calls.min().is_some_and(|call| call < forgotten)
        {
            self.bounds.forgotten += 1;
        }
        let is_met = |seen: &Seen| {
            let activation = seen.activation;
            let is_its = activation.is_some() && [function, loader].contains(&activation);
            // A load is in no repeat.
            is_its || seen.number > load
        };
        let met = self.take_met(is_met, repeats);
        self.confirm(met, |_| true, after);
    }

    /// Records that `function` is about to return with the registers of `after`. The program has put
    /// `overwritten` into slots of its frame: a row that gave that is right if it returns with it.
    pub(super) fn returns(
        &mut self,
        function: Activation,
        overwritten: &[(Reg, u64)],
        after: &Cpu,
        repeats: &Repeats,
    ) {
        let met = self.take_met(|seen| seen.activation == function, repeats);
        self.confirm(met, |&value| overwritten.contains(&value), after);
    }

    /// Records that what was overwritten in a frame was forgotten.
    pub(super) fn forgot_slots(&mut self) {
        self.bounds.forgotten += 1;
    }

    /// Takes the outcomes that were met where `is_met` says.
    fn take_met(&mut self, is_met: impl Fn(&Seen) -> bool, repeats: &Repeats) -> Vec<u32> {
        let Departures {
            seen,
            remembered,
            given,
            left,
            ..
        } = self;

        // Only where each starts is kept; it ends where the next one starts.
        let mut met = Vec::new();
        let ends = seen.iter().skip(1).map(|next| next.start);
        let ends: Vec<u64> = ends.chain([remembered.end]).collect();
        let mut ends = ends.into_iter();

        remembered.end = remembered.start;

        // The position of what stays moves down by the number of outcomes that are taken.
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
                    // The first ones of a repeat may be forgotten while the last are still
                    // remembered.
                    let all = repeats.outcomes(id).iter().copied();
                    let remembered =
                        all.filter(|id| given.contains_key(id) || left.contains_key(id));
                    met.extend(remembered.skip(forgotten as usize));
                }
            }
            false
        });

        met
    }

    /// Counts the outcomes whose function has left with the values that the row gave, all of which must
    /// be `possible`.
    fn confirm(&mut self, met: Vec<u32>, possible: impl Fn(&(Reg, u64)) -> bool, after: &Cpu) {
        let value = |reg| match reg {
            Reg::Rip => Some(after.rip),
            Reg::Rsp => Some(after.rsp),
            reg => {
                let at = Reg::CALLEE_SAVED.iter().position(|&r| r == reg)?;
                Some(after.saved[at])
            }
        };
        let Departures { given, left, .. } = self;
        for outcome in met {
            let is_so = |all: &Vec<(Reg, u64)>| {
                let is_there = |&(reg, given): &(Reg, u64)| value(reg) == Some(given);
                all.iter().all(|value| possible(value) && is_there(value))
            };
            if given.get(&outcome).is_some_and(is_so) {
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

/// Whether a row that gave these wrong values may be the one of a frame that is jumped to.
fn may_be_of_target(found: &[Contradiction]) -> bool {
    let is_given = |c: &Contradiction| c.given.is_some() && !c.misread;
    // Of some rows, the code around them says it at once.
    let is_open = |c: &Contradiction| c.class() == Class::Wrong;
    found.iter().all(is_given) && found.iter().any(is_open)
}

#[cfg(test)]
mod tests;
