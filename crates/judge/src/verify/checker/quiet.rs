//! Runs of instructions that have the outcome of the first one: the claims are the same, or say what
//! the instruction before does with the stack, as after `push %rbx` or `sub $24, %rsp`.
//!
//! What a run may be is known before it is executed ([`Code::run`]), except where it stores, pushes, or
//! may leave the frame. Its instructions are counted together, after the last one that was executed.
//!
//! [`Code::run`]: crate::verify::code::Code::run

use super::Checker;
use crate::verify::claim::{self, Claim, SAVED_NUMBERS};
use crate::verify::code::{Effect, Head, NO_EFFECT};
use crate::verify::findings::Check;
use crate::verify::numbered::NONE;
use crate::verify::repeats::Key;
use unwind_sim_emulator::Core;
use unwind_sim_emulator::effects::{Stack, Stores};
use unwind_sim_emulator::machine::Executed;
use unwind_sim_record::machine::MachineWorld;
use unwind_sim_unwind::insn::Insn;
use unwind_sim_unwind::truth::Tracker;

/// The maximum number of wrong outcomes in a run.
const OUTCOMES_MAX: usize = 64;

/// The run that is being executed.
///
/// While it is active, its instructions are neither checked nor counted: what is known is the outcome of
/// its first instruction, which is that of all of them, and how many have `started`. All but the last of
/// these were executed, and of the number of executed instructions only those from `number` on are not
/// in the shadow stack's statistics. [`Checker::end_run`] counts them all; nothing else may look at the
/// counts, the outcome or the shadow stack before.
pub(super) struct Run {
    /// The number of its instructions; 0 if none is being executed.
    len: u32,
    /// How many of them have started.
    started: u32,
    /// The index of the one that started last.
    last: u32,
    /// The number of the first one.
    number: u64,
    /// By how much rsp may rise from the instruction that was asked about last, without leaving a
    /// frame.
    room: u64,
    /// The slot of a push that the shadow stack does not know of yet, because it may still fault; 0
    /// if there is none.
    pushed: u64,
    /// The slot of a push that stopped.
    stopped: u64,
    /// The repeat that it is, if it is executed to its end; [`NONE`] if there is none.
    repeat: u32,
    /// If it began with a block: the block.
    block: Option<Head>,
    /// The wrong outcomes, by instruction, then by unwinder, if it is no repeat.
    outcomes: [u32; OUTCOMES_MAX],
}

impl Run {
    pub(super) const NONE: Run = Run {
        len: 0,
        started: 0,
        last: 0,
        number: 0,
        room: 0,
        pushed: 0,
        stopped: 0,
        repeat: NONE,
        block: None,
        outcomes: [0; OUTCOMES_MAX],
    };

    /// Whether a run is being executed.
    #[inline(always)]
    pub(super) fn is_active(&self) -> bool {
        self.len != 0
    }

    /// Whether the next instruction belongs to the run.
    #[inline(always)]
    pub(super) fn goes_on(&self) -> bool {
        self.started < self.len
    }

    /// Starts one of `len` instructions at instruction `number`. One instruction alone is none.
    #[inline(always)]
    fn start(&mut self, len: u32, number: u64) {
        self.len = if len < 2 { 0 } else { len };
        self.started = 0;
        self.block = None;
        self.number = number;
    }

    /// Starts the one at the start of a block, whose instructions up to the first one that stores or
    /// pushes are executed before anything is asked.
    #[inline(always)]
    fn start_block(&mut self, head: Head, number: u64) {
        self.len = head.len.into();
        self.started = head.ahead.count.into();
        self.last = head.wanted().saturating_sub(1);
        self.number = number;
        self.block = Some(head);
    }

    /// The instruction at `index` starts; rsp may rise by `room` from there.
    #[inline(always)]
    fn go_on(&mut self, index: u32, room: u64) {
        self.started += 1;
        self.last = index;
        self.room = room;
    }

    /// The number of instructions that are left, with the one that has started last.
    #[inline(always)]
    fn left(&self) -> u32 {
        self.len - self.started + 1
    }

    /// After the one that has started last, `count` - 1 more are executed without a question, up to that
    /// at `last`.
    #[inline(always)]
    fn skip(&mut self, last: u32, count: u32) {
        self.started += count - 1;
        self.last = last;
    }

    /// The instruction at `index` stopped, and so `left` instructions that were thought of as executed
    /// were not. It has started.
    fn stop(&mut self, index: u32, left: u64, is_push: bool) {
        self.started -= left.saturating_sub(1) as u32;
        self.last = index;
        if is_push {
            self.stopped = std::mem::take(&mut self.pushed);
        }
    }

    /// The instruction that stopped was executed after all.
    fn resume(&mut self) {
        if self.stopped != 0 {
            self.pushed = std::mem::take(&mut self.stopped);
        }
    }

    /// The last push was executed.
    #[inline(always)]
    fn settle_push(&mut self, tracker: &mut Tracker) {
        if self.pushed != 0 {
            tracker.pushed(self.pushed);
            self.pushed = 0;
        }
    }

    /// Ends it. Returns how many of its instructions have started, of how many.
    #[inline(always)]
    fn end(&mut self, tracker: &mut Tracker) -> (u32, u32) {
        let counts = (self.started, self.len);
        self.len = 0;
        self.settle_push(tracker);
        self.stopped = 0;
        counts
    }
}

impl Checker<'_> {
    /// Starts a run at the next instruction, whose outcome is known. Returns whether there is one.
    #[inline]
    pub(super) fn start_run(&mut self, index: u32) -> bool {
        let mut len = self.code.run(index);
        // The shadow stack has to see every instruction.
        if self.stacks.tracker.is_watching() {
            return false;
        }

        let number = self.counts.executed;
        if len < 2 || self.outcome.no_table != 0 || self.walks.is_due(number, len) {
            return false;
        }

        if self.outcome.wrong != 0 {
            let key = Key::new(self.outcome.wrong, self.outcome.wrong_by());
            self.run.repeat = key.map_or(NONE, |key| self.find_repeat(index, key, len));
            if self.run.repeat == NONE {
                len = self.find_outcomes(index, len);
            }
        }

        self.run.start(len, number);
        if self.run.is_active() {
            // The outcome is that of this instruction.
            self.outcome.settle();
        }

        self.run.is_active()
    }

    /// Starts the run at the start of the block that is entered, if it is known. Returns the index of
    /// the first operation that stores or pushes; all before it is counted as executed.
    #[inline]
    pub(super) fn start_with_block(&mut self, core: &Core) -> usize {
        let Some(head) = self.code.first_run() else {
            return 0;
        };

        // Where the shadow stack has to see every instruction, none can be counted ahead.
        if self.stacks.tracker.is_watching() {
            return 0;
        }

        // A run may reach neither the next walk of the whole stack nor the end of the frame.
        let len = u32::from(head.len);
        let number = self.counts.executed;
        let room = self.room(core);
        if self.walks.is_due(number, len) || u64::from(head.ahead.rise) > room {
            return 0;
        }

        if !self.outcome.holds(head.first) {
            if !self.judge(core, core.state.rip, head.first) {
                return 0;
            }
            // The outcome is that of the first instruction.
            self.outcome.settle();
        }

        // Instructions without a table are counted one by one, with their state.
        if self.outcome.no_table != 0 {
            return 0;
        }

        self.run.repeat = NONE;
        if self.outcome.wrong != 0 {
            let key = Key::new(self.outcome.wrong, self.outcome.wrong_by());
            // Only if all wrong outcomes of the run were met here: otherwise each is looked up at
            // its instruction.
            let first = self.code.first_repeat(&head);
            let find = |key| self.findings.repeats.find(first, key, len);
            match key.and_then(find) {
                Some(id) if self.code.can_repeat(id) => self.run.repeat = id,
                _ => return 0,
            }
        }

        // Counted ahead; if an instruction stops, `run_stopped` takes back the rest.
        self.run.start_block(head, number);
        self.counts.executed += u64::from(head.ahead.count);
        self.outcome.settle();

        head.wanted() as usize
    }

    /// The repeat of `len` instructions with these wrong outcomes, if it can be counted; [`NONE`]
    /// otherwise.
    #[inline]
    fn find_repeat(&mut self, index: u32, key: Key, len: u32) -> u32 {
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
            let end = address.wrapping_add(operand.size.into());
            if self.outcome.slots.are_in(address, end) {
                self.end_run();
                self.store(core, set, address..end);
            }
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
                let is_plain = !self.outcome.slots.are_in(slot, rsp)
                    && self.stacks.tracker.is_plain_push(
                        slot,
                        value,
                        &saved,
                        &mut MachineWorld(core),
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
    fn room(&self, core: &Core) -> u64 {
        let limit = self.stacks.tracker.limit();
        limit.saturating_sub(core.state.gpr(4))
    }

    /// The index of the next instruction of a run that stores, pushes, or may leave the frame, or of
    /// its end; 0 if there is no run. All before it is counted as executed.
    #[inline(always)]
    pub(super) fn next_effect(&mut self, index: u32) -> usize {
        if !self.run.is_active() {
            return 0;
        }
        let (last, count) = self.code.quiet_from(index, self.run.left(), self.run.room);
        self.run.skip(last, count);
        self.counts.executed += u64::from(count);
        last as usize + 1
    }

    /// The last `left` instructions that were counted as executed were not: `insn` stopped.
    #[cold]
    pub(super) fn run_stopped(&mut self, insn: &Executed, left: u64) {
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
        if let Some(head) = self.run.block.filter(|_| started == len) {
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
        if repeat != NONE && started == len {
            let now = (activation, self.run.number);
            for (which, count) in self.findings.count_repeat(repeat, now) {
                self.counts.tallies[which].wrong += count;
            }
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
    #[inline]
    fn carry(&mut self, set: u32) {
        if set == self.outcome.set {
            return;
        }
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
