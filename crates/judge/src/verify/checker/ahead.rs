//! Runs that are counted before they are executed: none of their instructions pushes. Stores to what the
//! outcome depends on are refused by the memory ([`Guard`]), and then the run is taken back.

use super::Checker;
use super::run::{End, WholeRun};
use crate::verify::claim;
use crate::verify::code::Head;
use crate::verify::numbered::NONE;
use crate::verify::repeats::Key;
use unwind_sim_emulator::Core;
use unwind_sim_emulator::address_space::Guard;
use unwind_sim_emulator::effects::Stores;
use unwind_sim_unwind::insn::Insn;

impl Checker<'_> {
    /// The repeat of `len` instructions from `index` on, if they can be counted as a whole; [`NONE`] if
    /// nothing is wrong.
    #[inline]
    pub(super) fn whole_repeat(&mut self, index: u32, len: u32) -> Option<u32> {
        if self.outcome.key == Key::RIGHT {
            return Some(NONE);
        }
        let repeat = self.find_repeat(index, len);
        (repeat != NONE && !self.findings.repeats.is_remembered(repeat)).then_some(repeat)
    }

    /// If none of the `len` instructions of the run from `index` on has to be asked about: the index of the
    /// last one, and what is known behind it.
    #[inline]
    pub(super) fn whole_from(&mut self, core: &Core, index: u32, len: u32) -> Option<(u32, End)> {
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
    pub(super) fn count_whole(&mut self, run: WholeRun, end: End) {
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
    pub(super) fn reopen(&mut self) {
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
}
