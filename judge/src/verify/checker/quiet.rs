//! Runs of instructions that have the outcome of the first one: the claims are the same, and none
//! of them writes a register that the claims name, moves rsp, or transfers control.
//!
//! What a run may be is known before it is executed ([`Code::run`]), except where it stores. Its
//! instructions are counted together, after the last one that was executed.
//!
//! [`Code::run`]: crate::verify::code::Code::run

use super::{Checker, claim};
use crate::verify::code::NO_STORES;
use crate::verify::findings::Check;
use unwind_sim_emulator::Core;
use unwind_sim_emulator::effects::Stores;
use unwind_sim_emulator::machine::Executed;

/// The maximum number of wrong outcomes in a run.
const OUTCOMES_MAX: usize = 64;

/// The run that is being executed.
pub(super) struct Run {
    /// The number of its instructions; 0 if none is being executed.
    len: u32,
    /// How many of them have started.
    started: u32,
    /// The index of the one that started last.
    last: u32,
    /// The number of the first one.
    number: u64,
    /// The wrong outcomes, by instruction, then by unwinder.
    outcomes: [u32; OUTCOMES_MAX],
}

impl Run {
    pub(super) const NONE: Run = Run {
        len: 0,
        started: 0,
        last: 0,
        number: 0,
        outcomes: [0; OUTCOMES_MAX],
    };

    /// Whether a run is being executed.
    #[inline(always)]
    pub(super) fn is_active(&self) -> bool {
        self.len != 0
    }

    /// Whether the next instruction belongs to the run. Then it has started.
    #[inline(always)]
    pub(super) fn goes_on(&mut self, index: u32) -> bool {
        let goes_on = self.started < self.len;
        self.started += u32::from(goes_on);
        if goes_on {
            self.last = index;
        }
        goes_on
    }
}

impl Checker<'_> {
    /// Starts a run at the next instruction, whose outcome is known. Returns whether there is one.
    #[inline]
    pub(super) fn start_run(&mut self, index: u32) -> bool {
        let mut len = self.code.run(index);
        if len < 2 || self.no_table != 0 || self.number + u64::from(len) > self.next_walk {
            return false;
        }
        if self.wrong != 0 {
            len = self.find_outcomes(index, len);
        }
        self.run.len = if len < 2 { 0 } else { len };
        self.run.started = 0;
        self.run.number = self.number;
        self.run.is_active()
    }

    /// Finds the wrong outcomes of at most `len` instructions. Returns for how many of them all were
    /// met before.
    fn find_outcomes(&mut self, mut index: u32, len: u32) -> u32 {
        let mut found = self.run.outcomes.iter_mut();
        for done in 0..len {
            let place = self.code.findings(index);
            let mut left = self.wrong;
            while left != 0 {
                let which = left.trailing_zeros() as usize;
                left &= left - 1;
                let wrong = self.judged[which].wrong;
                let outcome = self
                    .findings
                    .find(place, (which, Check::Instruction), wrong);
                let (Some(outcome), Some(to)) = (outcome, found.next()) else {
                    return done;
                };
                *to = outcome;
            }
            index = self.code.next_index(index);
        }
        len
    }

    /// An instruction of a run is about to be executed. Its store may end the run.
    #[inline(always)]
    pub(super) fn go_on(&mut self, core: &Core, insn: &Executed) {
        let Some(known) = self.code.known(insn.index) else {
            return;
        };
        let (set, stores) = (known.claims, known.stores());
        if stores == NO_STORES {
            return;
        }
        if let Stores::At(operand) = self.code.stores(stores) {
            let address = operand.address(core);
            let end = address.wrapping_add(operand.size.into());
            if self.slots.are_in(address, end) {
                self.end_run();
                self.store(core, set, address..end);
            }
        }
    }

    /// The index of the next store of a run, or of its end; 0 if there is none. All before it is
    /// counted as executed.
    #[inline(always)]
    pub(super) fn next_store(&mut self, index: u32) -> usize {
        if !self.run.is_active() {
            return 0;
        }
        let most = self.run.len - self.run.started + 1;
        let (last, count) = self.code.to_store(index, most);
        self.run.started += count - 1;
        self.run.last = last;
        self.number += u64::from(count);
        last as usize + 1
    }

    /// The last `left` instructions that were counted as executed were not: `insn` stopped.
    #[cold]
    pub(super) fn run_stopped(&mut self, insn: &Executed, left: u64) {
        self.number -= left;
        // It has started.
        self.run.started -= left.saturating_sub(1) as u32;
        self.run.last = insn.index;
    }

    /// Counts what has been executed of a run, if there is one, and ends it.
    #[inline(always)]
    pub(super) fn end_run(&mut self) {
        if self.run.is_active() {
            self.count_run();
        }
    }

    #[inline(never)]
    fn count_run(&mut self) {
        let started = self.run.started;
        self.run.len = 0;
        self.checked += u64::from(started);
        self.tracker.step_many(self.number - self.run.number);
        self.index = self.run.last;
        if let Some(known) = self.code.known(self.run.last) {
            self.changed = claim::Parts::from(known.writes);
            self.class = known.class;
        }
        if self.wrong == 0 {
            return;
        }
        let activation = self.activation(self.tracker.frames().len().checked_sub(1));
        let mut outcomes = self.run.outcomes.iter();
        for number in self.run.number..self.run.number + u64::from(started) {
            let mut left = self.wrong;
            while left != 0 {
                let which = left.trailing_zeros() as usize;
                left &= left - 1;
                let Some(&outcome) = outcomes.next() else {
                    return;
                };
                let is_wrong = self.findings.count(outcome, (activation, number));
                self.tallies[which].wrong += u64::from(is_wrong);
            }
        }
    }
}
