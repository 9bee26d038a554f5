//! What is known of the run that is being executed.

use crate::verify::code::Head;
use crate::verify::numbered::NONE;
use unwind_sim_emulator::address_space::Guard;
use unwind_sim_unwind::truth::Tracker;

/// The maximum number of wrong outcomes in a run.
const OUTCOMES_MAX: usize = 64;

/// The run that is being executed.
///
/// While it is active, its instructions are neither checked nor counted: what is known is the outcome of
/// its first instruction, which is that of all of them, and how many have `started`. All but the last of
/// these were executed, and of the number of executed instructions only those from `number` on are not
/// in the shadow stack's statistics. `Checker::end_run` counts them all; nothing else may look at the
/// counts, the outcome or the shadow stack before.
pub(super) struct Run {
    /// The number of its instructions; 0 if none is being executed.
    pub(super) len: u32,
    /// How many of them have started.
    pub(super) started: u32,
    /// The index of the one that started last.
    pub(super) last: u32,
    /// The number of the first one.
    pub(super) number: u64,
    /// By how much rsp may rise from the instruction that was asked about last, without leaving a
    /// frame.
    pub(super) room: u64,
    /// The slot of a push that the shadow stack does not know of yet, because it may still fault; 0
    /// if there is none.
    pub(super) pushed: u64,
    /// The slot of a push that stopped.
    pub(super) stopped: u64,
    /// The repeat that it is, if it is executed to its end; [`NONE`] if there is none.
    pub(super) repeat: u32,
    /// The number of instructions of that.
    pub(super) repeat_len: u32,
    /// Whether the next instruction was checked with the run before it.
    pub(super) closing: bool,
    /// If it began with a block: the block.
    pub(super) block: Option<Head>,
    /// The one that was counted last, as a whole.
    pub(super) whole: WholeRun,
    /// What is guarded during that one: the slots of its first instruction, since it may pop some.
    pub(super) guard: Guard,
    /// The index of the next operation behind that, where the observer was asked about its first
    /// instruction; 0 if it was not.
    pub(super) wanted: u32,
    /// The wrong outcomes, by instruction, then by unwinder, if it is no repeat.
    pub(super) outcomes: [u32; OUTCOMES_MAX],
}

/// A run that was counted before it was executed. None of its instructions pushes, leaves the frame, or
/// is asked about, so nothing can be known of it but that it was executed, or that it has
/// stopped.
#[derive(Clone, Copy)]
pub(super) struct WholeRun {
    /// The number of its instructions.
    pub(super) len: u32,
    /// Whether the one behind them [closes](crate::verify::code::Code::closes) it, and was checked with
    /// them.
    pub(super) closes: bool,
    /// The set of claims of the first one.
    pub(super) set: u32,
    /// The number of the first one.
    pub(super) number: u64,
    /// See [`Run::repeat`].
    pub(super) repeat: u32,
}

impl WholeRun {
    /// The number of instructions that are checked with it.
    #[inline(always)]
    pub(super) fn checked(&self) -> u64 {
        u64::from(self.len) + u64::from(self.closes)
    }
}

/// What is known behind a run.
#[derive(Clone, Copy)]
pub(super) struct End {
    /// The set of claims of its last instruction, or of the one that closes it.
    pub(super) set: u32,
    /// What has been written since that was checked.
    pub(super) writes: u8,
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
    pub(super) fn start(&mut self, len: u32, number: u64) {
        self.len = len;
        self.repeat_len = len;
        self.started = 0;
        self.block = None;
        self.number = number;
    }

    /// Starts the one at the start of a block, whose instructions up to the first one that
    /// pushes are executed before anything is asked.
    #[inline(always)]
    pub(super) fn start_block(&mut self, head: Head, number: u64) {
        self.len = head.len.into();
        self.repeat_len = self.len;
        self.started = head.ahead.count.into();
        self.last = head.wanted().saturating_sub(1);
        self.number = number;
        self.block = Some(head);
    }

    /// The instruction at `index` starts; rsp may rise by `room` from there.
    #[inline(always)]
    pub(super) fn go_on(&mut self, index: u32, room: u64) {
        self.started += 1;
        self.last = index;
        self.room = room;
    }

    /// The number of instructions that are left, with the one that has started last.
    #[inline(always)]
    pub(super) fn left(&self) -> u32 {
        self.len - self.started + 1
    }

    /// After the one that has started last, `count` - 1 more are executed without a question, up to that
    /// at `last`.
    #[inline(always)]
    pub(super) fn skip(&mut self, last: u32, count: u32) {
        self.started += count - 1;
        self.last = last;
    }

    /// The instruction at `index` stopped, and so `left` instructions that were thought of as executed
    /// were not. It has started.
    pub(super) fn stop(&mut self, index: u32, left: u64, is_push: bool) {
        self.started -= left.saturating_sub(1) as u32;
        self.last = index;
        if is_push {
            self.stopped = std::mem::take(&mut self.pushed);
        }
    }

    /// The instruction that stopped was executed after all.
    pub(super) fn resume(&mut self) {
        if self.stopped != 0 {
            self.pushed = std::mem::take(&mut self.stopped);
        }
    }

    /// The last push was executed.
    #[inline(always)]
    pub(super) fn settle_push(&mut self, tracker: &mut Tracker) {
        if self.pushed != 0 {
            tracker.pushed(self.pushed);
            self.pushed = 0;
        }
    }

    /// Ends it. Returns how many of its instructions have started, of how many.
    #[inline(always)]
    pub(super) fn end(&mut self, tracker: &mut Tracker) -> (u32, u32) {
        let counts = (self.started, self.len);
        self.len = 0;
        self.settle_push(tracker);
        self.stopped = 0;
        counts
    }
}
