//! Runs of instructions that have the outcome of the first one: the claims are the same, or say what
//! the instruction before does with the stack, as after `push %rbx` or `sub $24, %rsp`.
//!
//! What a run may be is known before it is executed ([`Code::run`]), except where it pushes, stores to
//! what the outcome depends on, or may leave the frame. One that does not push is counted before it is
//! executed (`ahead`), any other after its last instruction. What is known of the one that is being
//! executed is in `run`.
//!
//! [`Code::run`]: crate::verify::code::Code::run

use super::Checker;
use super::run::WholeRun;
use crate::verify::claim::{self, Claim, SAVED_NUMBERS};
use crate::verify::code::{Effect, NO_EFFECT};
use crate::verify::findings::Check;
use crate::verify::numbered::NONE;
use crate::verify::repeats::Key;
use unwind_sim_emulator::Core;
use unwind_sim_emulator::effects::{Stack, Stores};
use unwind_sim_emulator::machine::Executed;
use unwind_sim_record::machine::MachineWorld;
use unwind_sim_unwind::insn::Insn;

/// How a run begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Started {
    /// There is none.
    Nothing,
    /// It was counted as a whole.
    Whole,
    /// It is counted at its end.
    Asking,
}

impl Checker<'_> {
    /// Starts a run at the next instruction, whose outcome is known.
    #[inline]
    pub(super) fn start_run(&mut self, core: &Core, index: u32) -> Started {
        let len = self.code.run(index);
        // The shadow stack has to see every instruction.
        if len == 0 || self.stacks.tracker.is_watching() {
            return Started::Nothing;
        }

        let closes = self.code.closes(index);
        let number = self.counts.executed;
        let checked = len + u32::from(closes);
        if checked < 2 || self.outcome.no_table != 0 || self.walks.is_due(number, checked) {
            return Started::Nothing;
        }

        if let Some((last, end)) = self.whole_from(core, index, len)
            && let Some(repeat) = self.whole_repeat(index, checked)
        {
            self.outcome.settle();
            let run = WholeRun {
                len,
                closes,
                set: self.outcome.set,
                number,
                repeat,
            };
            self.count_whole(run, end);
            self.run.wanted = last + 1;
            return Started::Whole;
        }

        self.start_asking(index, len)
    }

    /// Starts a run of `len` instructions at the next one, which are counted at its end.
    fn start_asking(&mut self, index: u32, mut len: u32) -> Started {
        self.run.repeat = NONE;
        if self.outcome.key != Key::RIGHT {
            self.run.repeat = self.find_repeat(index, len);
            if self.run.repeat == NONE {
                len = self.find_outcomes(index, len);
            }
        }

        // One instruction alone is no run.
        if len < 2 {
            return Started::Nothing;
        }
        self.run.start(len, self.counts.executed);
        // The outcome is that of this instruction.
        self.outcome.settle();
        Started::Asking
    }

    /// The repeat of `len` instructions with these wrong outcomes, if it can be counted; [`NONE`]
    /// otherwise.
    #[inline]
    pub(super) fn find_repeat(&mut self, index: u32, len: u32) -> u32 {
        let key = self.outcome.key;
        if key == Key::TOO_MANY {
            return NONE;
        }
        let Some((first, here)) = self.code.repeats_mut(index) else {
            return NONE;
        };
        let known = self.findings.repeats.find(*first, key, len);
        match known {
            Some(id) if here.contains(id) => id,
            known => self.add_repeat(index, (key, len), known),
        }
    }

    /// Adds a repeat, or confirms one that another process has, if all of its outcomes were met.
    #[cold]
    #[inline(never)]
    fn add_repeat(&mut self, index: u32, (key, len): (Key, u32), known: Option<u32>) -> u32 {
        if self.find_outcomes(index, len) != len || self.code.met.is_single() {
            return NONE;
        }
        let count = len as usize * self.outcome.wrong.count_ones() as usize;
        let outcomes = &self.run.outcomes[..count];
        let Some((first, here)) = self.code.repeats_mut(index) else {
            return NONE;
        };
        let id = match known {
            Some(id) if self.findings.repeats.outcomes(id) != outcomes => None,
            Some(id) => Some(id),
            None => self.findings.add_repeat(first, (key, len), outcomes),
        };
        let Some(id) = id else { return NONE };
        here.insert(id);
        id
    }

    /// Finds the wrong outcomes of at most `len` instructions. Returns for how many of them all were
    /// met before.
    fn find_outcomes(&mut self, mut index: u32, len: u32) -> u32 {
        let mut found = self.run.outcomes.iter_mut();
        for done in 0..len {
            let place = self.code.findings(index);
            let mut left = self.outcome.wrong;
            while left != 0 {
                let which = left.trailing_zeros() as usize;
                left &= left - 1;
                let wrong = self.outcome.judged[which].wrong;
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

    /// An instruction of a run is about to be executed. It may end the run.
    #[inline(always)]
    pub(super) fn go_on(&mut self, core: &Core, insn: &Executed) {
        let Some(known) = self.code.known(insn.index) else {
            return;
        };
        let (set, effect) = (known.claims, known.effect());
        let Effect { stores, stack } = self.code.effect(effect);
        if effect != NO_EFFECT && !self.stays_in_frame(core, stack) {
            self.end_run();
            self.carry(set);
            self.outcome.settle();
            return self.begin(core, insn, false);
        }
        self.run.go_on(insn.index, self.room(core));
        if let Stores::At(operand) = stores {
            let address = operand.address(core);
            if self.outcome.slots.covers(address, operand.size.into()) {
                let end = address.wrapping_add(operand.size.into());
                self.end_run();
                self.store(core, set, address..end);
            }
        }
    }

    /// An instruction of a run that was counted ahead is about to store into what is guarded: into a slot
    /// that the outcome depends on, or into a live one.
    #[cold]
    pub(super) fn guarded_store(&mut self, core: &Core, insn: &Executed) {
        let Some(known) = self.code.known(insn.index) else {
            return;
        };
        let (set, effect) = (known.claims, known.effect());
        self.run.room = self.room(core);
        if let Stores::At(operand) = self.code.effect(effect).stores {
            let address = operand.address(core);
            let end = address.wrapping_add(operand.size.into());
            self.end_run();
            self.store(core, set, address..end);
        }
    }

    /// Whether the next instruction, which does this with rsp, leaves all frames as they are.
    #[inline]
    fn stays_in_frame(&mut self, core: &Core, stack: Stack) -> bool {
        self.run.settle_push(&mut self.stacks.tracker);
        let rsp = core.state.gpr(4);
        match stack {
            Stack::Push(number) => {
                let slot = rsp.wrapping_sub(8);
                let saved = SAVED_NUMBERS.map(|number| core.state.gpr(number));
                let value = core.state.gpr(number.into());
                // A push into what the claims read, or one that means something to the shadow
                // stack, ends the run: each has to be seen by itself.
                let is_plain = !self.outcome.slots.covers(slot, 8)
                    && self.stacks.tracker.is_plain_push(
                        slot,
                        value,
                        &saved,
                        &mut MachineWorld::kernel(core, &self.stacks.code),
                    );
                if is_plain {
                    // The push may still stop, at a page that is not there: it is reported when it
                    // was executed.
                    self.run.pushed = slot;
                    self.outcome.slots.lower(slot);
                }
                is_plain
            }
            Stack::Pop(_) | Stack::Add(_) => {
                // Beyond the limit, rsp would leave the innermost frame.
                rsp.wrapping_add_signed(stack.moves()) <= self.stacks.tracker.limit()
            }
            Stack::ToFramePointer | Stack::Other => true,
        }
    }

    /// By how many bytes rsp may rise without leaving a frame.
    #[inline(always)]
    pub(super) fn room(&self, core: &Core) -> u64 {
        let limit = self.stacks.tracker.limit();
        limit.saturating_sub(core.state.gpr(4))
    }

    /// The index of the next instruction of a run that pushes, or may leave the frame, or of
    /// its end; 0 if there is no run. All before it is counted as executed.
    #[inline(always)]
    pub(super) fn next_effect(&mut self, index: u32) -> usize {
        if !self.run.is_active() {
            return std::mem::take(&mut self.run.wanted) as usize;
        }
        let (last, count) = self.code.quiet_from(index, self.run.left(), self.run.room);
        self.run.skip(last, count);
        self.counts.executed += u64::from(count);
        last as usize + 1
    }

    /// The last `left` instructions that were counted as executed were not: `insn` stopped.
    #[cold]
    pub(super) fn run_stopped(&mut self, insn: &Executed, left: u64) {
        if !self.run.is_active() {
            self.reopen();
        }
        self.counts.executed -= left;
        let known = self.code.known(insn.index);
        let is_push = known.is_some_and(|known| known.class == Insn::Push);
        self.run.stop(insn.index, left, is_push);
    }

    /// An instruction that had stopped was executed after all.
    #[cold]
    pub(super) fn executed(&mut self) {
        self.counts.executed += 1;
        self.run.resume();
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
        let (started, len) = self.run.end(&mut self.stacks.tracker);
        if started == 0 {
            return;
        }

        self.counts.checked += u64::from(started);
        let executed = self.counts.executed - self.run.number;
        self.stacks.tracker.step_many(executed);

        self.current.index = self.run.last;
        // The state behind the run is that of its last instruction: the next outcome may be
        // computed from it.
        if let Some(head) = self.run.block.filter(|head| started == len && !head.closes) {
            self.outcome.changed = claim::Parts::from(head.writes);
            self.current.class = Insn::Other;
            self.carry(head.end);
        } else if let Some(&mut known) = self.code.known(self.run.last) {
            self.outcome.changed = claim::Parts::from(known.writes);
            self.current.class = known.class;
            self.carry(known.claims);
        }

        // All instructions of a run have one outcome: if nothing is wrong, none has a finding.
        if self.outcome.wrong == 0 {
            return;
        }

        let activation = self.stacks.running();
        let repeat = self.run.repeat;

        // Executed to its end, a repeat is counted with one number.
        if repeat != NONE && started == self.run.repeat_len {
            let now = (activation, self.run.number);
            self.findings.count_repeat(repeat, now);
            return;
        }

        // Of a part of a repeat, each outcome is counted by itself.
        let all = self.findings.repeats.outcomes(repeat);
        self.run.outcomes[..all.len()].copy_from_slice(all);
        let mut outcomes = self.run.outcomes.iter();

        for number in self.run.number..self.run.number + u64::from(started) {
            let mut left = self.outcome.wrong;
            while left != 0 {
                let which = left.trailing_zeros() as usize;
                left &= left - 1;
                let Some(&outcome) = outcomes.next() else {
                    return;
                };
                let is_wrong = self.findings.count(outcome, (activation, number));
                self.counts.tallies[which].wrong += u64::from(is_wrong);
            }
        }
    }

    /// The last outcome is that of an instruction with the set of claims `set`, too.
    #[inline(always)]
    pub(super) fn carry(&mut self, set: u32) {
        if set != self.outcome.set {
            self.carry_to(set);
        }
    }

    fn carry_to(&mut self, set: u32) {
        let tracker = &self.stacks.tracker;
        let (Some(known), Some(held)) = (self.code.set(set), tracker.frames().last()) else {
            return;
        };
        for which in 0..self.unwinders.len() {
            let number = known.claims[which];
            if let Claim::Simple(simple) = self.code.claim(number) {
                self.outcome.carry(which, number, simple);
            }
        }
        let slots = self.outcome.slots_read(held, &self.unwinders, tracker);
        self.outcome.carried(set, known.depends, slots);
    }
}
