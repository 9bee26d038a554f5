//! Runs of instructions that have the outcome of the first one: the claims are the same, or say what
//! the instruction before does with the stack, as after `push %rbx` or `sub $24, %rsp`.
//!
//! What a run may be is known before it is executed ([`Code::run`]), except where it pushes, stores to
//! what the outcome depends on, or may leave the frame. One that does not push is counted before it is
//! executed: such stores are refused by the memory, and then the run is taken back ([`Guard`]). Any other
//! is counted together, after the last instruction that was executed.
//!
//! [`Code::run`]: crate::verify::code::Code::run

use super::Checker;
use crate::verify::claim::{self, Claim, SAVED_NUMBERS};
use crate::verify::code::{Effect, Head, NO_EFFECT};
use crate::verify::findings::Check;
use crate::verify::numbered::NONE;
use crate::verify::repeats::Key;
use unwind_sim_emulator::Core;
use unwind_sim_emulator::address_space::Guard;
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
    /// The number of instructions of that.
    repeat_len: u32,
    /// Whether the next instruction was checked with the run before it.
    closing: bool,
    /// If it began with a block: the block.
    block: Option<Head>,
    /// The one that was counted last, as a whole.
    whole: WholeRun,
    /// What is guarded during that one: the slots of its first instruction, since it may pop some.
    guard: Guard,
    /// The index of the next operation behind that, where the observer was asked about its first
    /// instruction; 0 if it was not.
    wanted: u32,
    /// The wrong outcomes, by instruction, then by unwinder, if it is no repeat.
    outcomes: [u32; OUTCOMES_MAX],
}

/// A run that was counted before it was executed. None of its instructions pushes, leaves the frame, or
/// is asked about, so nothing can be known of it but that it was executed, or that it has
/// [stopped](Checker::run_stopped).
#[derive(Clone, Copy)]
struct WholeRun {
    /// The number of its instructions.
    len: u32,
    /// Whether the one behind them [closes](crate::verify::code::Code::closes) it, and was checked with
    /// them.
    closes: bool,
    /// The set of claims of the first one.
    set: u32,
    /// The number of the first one.
    number: u64,
    /// See [`Run::repeat`].
    repeat: u32,
}

impl WholeRun {
    /// The number of instructions that are checked with it.
    #[inline(always)]
    fn checked(&self) -> u64 {
        u64::from(self.len) + u64::from(self.closes)
    }
}

/// What is known behind a run.
#[derive(Clone, Copy)]
struct End {
    /// The set of claims of its last instruction, or of the one that closes it.
    set: u32,
    /// What has been written since that was checked.
    writes: u8,
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
        repeat_len: 0,
        closing: false,
        block: None,
        whole: WholeRun {
            len: 0,
            closes: false,
            set: NONE,
            number: 0,
            repeat: NONE,
        },
        guard: Guard::NONE,
        wanted: 0,
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

    /// Whether the next instruction was checked with the run before it.
    #[inline(always)]
    pub(super) fn closes(&mut self) -> bool {
        std::mem::take(&mut self.closing)
    }

    /// Starts one of `len` instructions at instruction `number`.
    #[inline(always)]
    fn start(&mut self, len: u32, number: u64) {
        self.len = len;
        self.repeat_len = len;
        self.started = 0;
        self.block = None;
        self.number = number;
    }

    /// Starts the one at the start of a block, whose instructions up to the first one that
    /// pushes are executed before anything is asked.
    #[inline(always)]
    fn start_block(&mut self, head: Head, number: u64) {
        self.len = head.len.into();
        self.repeat_len = self.len;
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

    /// The repeat of `len` instructions from `index` on, if they can be counted as a whole; [`NONE`] if
    /// nothing is wrong.
    #[inline]
    fn whole_repeat(&mut self, index: u32, len: u32) -> Option<u32> {
        if self.outcome.key == Key::RIGHT {
            return Some(NONE);
        }
        let repeat = self.find_repeat(index, len);
        (repeat != NONE && !self.findings.repeats.is_remembered(repeat)).then_some(repeat)
    }

    /// If none of the `len` instructions of the run from `index` on has to be asked about: the index of the
    /// last one, and what is known behind it.
    #[inline]
    fn whole_from(&mut self, core: &Core, index: u32, len: u32) -> Option<(u32, End)> {
        let room = self.room(core);
        let known = *self.code.known(index)?;
        let ahead = known.ahead;
        if u32::from(ahead.count) != len || u64::from(ahead.rise) > room {
            return None;
        }
        // The first one is executed without the guard, and may push.
        let effect = self.code.effect(known.effect());
        let hits = match effect.stores {
            Stores::At(operand) => {
                let address = operand.address(core);
                self.outcome.slots.covers(address, operand.size.into())
            }
            _ => false,
        };
        if hits || !effect.is_quiet() {
            return None;
        }

        let last = ahead.last_from(index);
        let closing = self.code.closes(index).then(|| self.code.next_index(last));
        let end = self.code.known(closing.unwrap_or(last))?;
        let writes = if closing.is_some() { 0 } else { end.writes };
        let set = end.claims;
        Some((last, End { set, writes }))
    }

    /// What instructions must not store to that are executed without a question.
    #[inline(always)]
    pub(super) fn run_guard(&self) -> Guard {
        if self.run.is_active() {
            self.outcome.slots
        } else {
            self.run.guard
        }
    }

    /// Counts a run that is about to be executed. Not a call: a processor is slow to read as a whole what
    /// was just written in small parts, as `run` would be.
    #[inline(always)]
    fn count_whole(&mut self, run: WholeRun, end: End) {
        let len = u64::from(run.len);
        self.counts.executed += len;
        self.counts.checked += run.checked();
        self.stacks.tracker.step_many(len);
        if run.repeat != NONE {
            self.findings.repeats.count(run.repeat);
        }
        self.run.whole = run;
        self.run.closing = run.closes;
        self.run.guard = self.outcome.slots;
        // The state behind it is that of its last instruction.
        self.current.class = Insn::Other;
        self.outcome.changed = claim::Parts::from(end.writes);
        self.carry(end.set);
    }

    /// The run that was counted last as a whole is not one: it goes on as one of which all instructions
    /// have started.
    #[cold]
    fn reopen(&mut self) {
        let run = self.run.whole;
        let WholeRun {
            len,
            set,
            number,
            repeat,
            ..
        } = run;
        self.counts.checked -= run.checked();
        self.stacks.tracker.unstep_many(len.into());
        if repeat != NONE {
            self.findings.repeats.uncount(repeat);
        }
        self.outcome.settle();
        self.carry(set);
        self.run.start(len, number);
        self.run.started = len;
        // What closes it is not in it now.
        (self.run.repeat, self.run.repeat_len) = (repeat, run.checked() as u32);
        (self.run.wanted, self.run.closing) = (0, false);
    }

    /// Starts the run at the start of the block that is entered, if it is known. Returns the index of
    /// the first operation that pushes; all before it is counted as executed.
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
        let is_whole = head.ahead.count == head.len;
        let closes = head.closes && is_whole;
        let checked = len + u32::from(closes);
        if self.walks.is_due(number, checked) || u64::from(head.ahead.rise) > room {
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

        let mut repeat = NONE;
        let key = self.outcome.key;
        if key != Key::RIGHT {
            // Only if all wrong outcomes of the run were met here: otherwise each is looked up at
            // its instruction.
            match self.block_repeat(&head, key, checked) {
                Some(known) => repeat = known,
                None => return 0,
            }
        }

        // What is counted with the call of its function cannot be taken back.
        let is_remembered = repeat != NONE && self.findings.repeats.is_remembered(repeat);
        if is_remembered && closes {
            return 0;
        }

        self.outcome.settle();
        if is_whole && !is_remembered {
            let run = WholeRun {
                len,
                closes,
                set: head.first,
                number,
                repeat,
            };
            let end = End {
                set: head.end,
                writes: head.writes,
            };
            self.count_whole(run, end);
            return head.wanted() as usize;
        }

        // Counted ahead; if an instruction stops, `run_stopped` takes back the rest.
        self.run.repeat = repeat;
        self.run.start_block(head, number);
        self.counts.executed += u64::from(head.ahead.count);
        head.wanted() as usize
    }

    /// The repeat of the run that begins with the block, for what `key` says is wrong.
    #[inline]
    fn block_repeat(&mut self, head: &Head, key: Key, len: u32) -> Option<u32> {
        if let Some(repeat) = self.code.noted_repeat(key) {
            return Some(repeat);
        }
        let first = self.code.first_repeat(head);
        let repeat = self.findings.repeats.find(first, key, len)?;
        self.code.note_repeat(key, repeat).then_some(repeat)
    }

    /// The repeat of `len` instructions with these wrong outcomes, if it can be counted; [`NONE`]
    /// otherwise.
    #[inline]
    fn find_repeat(&mut self, index: u32, len: u32) -> u32 {
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
    fn carry(&mut self, set: u32) {
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
