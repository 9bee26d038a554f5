//! Rows that describe the frame which the code is about to jump to, as those of `longjmp`,
//! `setcontext` and `__builtin_eh_return` do.
//!
//! Such code takes registers from a buffer, or writes them into its own save slots, and its rows
//! say early what is true behind the jump. It is recognized by what it does: rsp is loaded so that
//! frames are left, or a written return address is taken, and behind the jump the registers are
//! those that the row gave.

use super::memory::list_bytes;
use crate::check::Contradiction;
use hashbrown::HashMap;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::truth::Cpu;

/// Outcomes that are remembered until their function is left.
const SEEN_MAX: usize = 1024;
/// Outcomes whose values are remembered.
const GIVEN_MAX: usize = 4096;
/// Instructions from the load of rsp to the jump.
const TO_JUMP_MAX: u64 = 64;

/// An outcome that was wrong.
struct Seen {
    outcome: u32,
    activation: Activation,
    number: u64,
}

/// The number of the instruction that called the function whose frame it is.
pub(super) type Activation = Option<u64>;

/// What was seen of functions that have not returned yet.
#[derive(Default)]
pub(super) struct Departures {
    seen: Vec<Seen>,
    /// By outcome, what the row gave when it was met first.
    given: HashMap<u32, Vec<(Reg, u64)>>,
    /// By outcome, how often its function then left as the row says.
    left: HashMap<u32, u64>,
    /// The function that has loaded rsp, and when.
    leaving: Option<(Activation, u64)>,
}

impl Departures {
    /// An outcome is new: what it says.
    pub(super) fn learn(&mut self, outcome: u32, found: &[Contradiction]) {
        let given = found.iter().map(|c| Some((c.reg, c.given?)));
        let given: Option<Vec<_>> = given.collect();
        if let Some(given) = given.filter(|given| !given.is_empty())
            && self.given.len() < GIVEN_MAX
            && !found.iter().any(|c| c.misread)
        {
            self.given.insert(outcome, given);
        }
    }

    /// An outcome was met in the frame of a function.
    #[inline]
    pub(super) fn meet(&mut self, outcome: u32, activation: Activation, number: u64) {
        if self.seen.len() == SEEN_MAX {
            self.seen.drain(..SEEN_MAX / 2);
        }
        self.seen.push(Seen {
            outcome,
            activation,
            number,
        });
    }

    /// Instruction `number` of a function has loaded rsp so that frames are left.
    pub(super) fn load(&mut self, function: Activation, number: u64) {
        self.leaving = Some((function, number));
    }

    /// Is a jump at instruction `number` the end of that?
    pub(super) fn is_leaving(&self, number: u64) -> bool {
        self.leaving
            .is_some_and(|(_, load)| number - load <= TO_JUMP_MAX)
    }

    /// `function` has left by a jump, behind which the state is `after`.
    pub(super) fn leave(&mut self, function: Activation, after: &Cpu) {
        let (loader, load) = self.leaving.take().unwrap_or((None, u64::MAX));
        let is_met = |seen: &Seen| {
            let activation = seen.activation;
            let is_its = activation.is_some() && [function, loader].contains(&activation);
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
            seen, given, left, ..
        } = self;
        seen.retain(|seen| {
            if !is_met(seen) {
                return true;
            }
            let known = given.get(&seen.outcome);
            if known.is_some_and(|g| g.iter().all(|&(reg, given)| value(reg) == Some(given))) {
                given.remove(&seen.outcome);
                left.insert(seen.outcome, 1);
            } else if let Some(count) = left.get_mut(&seen.outcome) {
                *count += 1;
            }
            false
        });
    }

    /// How often the function of an outcome then left as its row says.
    pub(super) fn left(&self, outcome: u32) -> u64 {
        self.left.get(&outcome).copied().unwrap_or(0)
    }

    /// Heap bytes.
    pub(super) fn bytes(&self) -> usize {
        let maps = self.given.allocation_size() + self.left.allocation_size();
        list_bytes(&self.seen) + maps
    }
}

#[cfg(test)]
mod tests;
