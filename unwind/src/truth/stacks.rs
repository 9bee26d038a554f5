//! The frames of a shadow stack, the stacks they are on, and suspended chains of frames
//! (coroutines). The `tracker` changes them.

use super::TrueKind;
use alloc::vec::Vec;

/// What a tracker observes of a thread at an instruction boundary.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cpu {
    /// The next instruction.
    pub rip: u64,
    /// The stack pointer.
    pub rsp: u64,
    /// rbx, rbp, r12 to r15, in the order of [`crate::regs::Reg::CALLEE_SAVED`].
    pub saved: [u64; 6],
}

/// What a tracker needs to ask the executor. It asks rarely: at stack switches.
pub trait World {
    /// The 8 bytes at `address`, if they can be read.
    fn word(&mut self, address: u64) -> Option<u64>;
    /// Whether `address` is in executable memory.
    fn is_code(&mut self, address: u64) -> bool;
    /// Whether both addresses are in the same mapping.
    fn same_mapping(&mut self, a: u64, b: u64) -> bool;
}

/// A frame of the shadow stack: the place to which a call or signal will return.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Address of the word that contains `pc`.
    pub slot: u64,
    /// rsp after the return.
    pub cfa: u64,
    /// The address to which the thread returns.
    pub pc: u64,
    /// Callee-saved registers when the frame was made, at the entry of the callee or handler.
    pub saved: [u64; 6],
    /// [`TrueKind::Call`], [`TrueKind::Interrupted`] or [`TrueKind::Trapped`].
    pub kind: TrueKind,
    /// Whether the program wrote the slot with an instruction that the tracker has seen.
    pub(super) rewritten: bool,
    /// Whether it was made by a call to the next instruction, which only reads its own address.
    pub(super) thunk: bool,
    /// Whether its return address was popped into a register. The frame continues without a slot,
    /// and `slot` equals `cfa`.
    pub(super) in_register: bool,
}

impl Held {
    /// Whether its return address is in memory rather than popped into a register.
    #[inline]
    pub const fn is_in_memory(&self) -> bool {
        !self.in_register
    }
}

/// A stack, or part of one, that a chain runs through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    /// Index of the segment's first frame.
    pub(super) first: usize,
    /// The highest rsp that belongs to the segment.
    pub(super) high: u64,
    /// rsp when the chain moved on to the next segment; meaningless in the last one.
    pub(super) low: u64,
    /// How it was entered, while that is undecided. `None` in a chain's first segment.
    pub(super) pending: Option<Pending>,
}

/// rsp was loaded with an address on another stack. The next transfer of control determines the
/// reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pending {
    /// Whether the new rsp is among the frames of the previous segment: a `longjmp`, or a
    /// coroutine's stack in a local array.
    pub(super) nested: bool,
    /// Whether it is too far away for `alloca`.
    pub(super) far: bool,
}

/// Where a chain starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// At its root.
    Root,
    /// In the middle: it has outer frames that were not observed.
    Middle,
}

/// A chain of frames, the outermost first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Chain {
    pub(super) frames: Vec<Held>,
    /// The stacks that it runs through; never empty.
    pub(super) segments: Vec<Segment>,
    pub(super) origin: Origin,
    /// rsp at the start of the chain, even if its stack was moved since.
    pub(super) root_sp: u64,
    /// rsp when it was suspended.
    pub(super) rsp: u64,
    /// The highest rsp at which it then resumes.
    pub(super) resumes_to: u64,
}

/// The maximum distance from the recorded rsp at which a suspended chain counts as resumed: room
/// for the pushes and pops of a switch function.
const RESUME_SLACK: u64 = 256;
/// The same, upwards from the slot of the innermost frame: the switch returns.
const RETURN_SLACK: u64 = 64;
/// The number of frames compared with memory before a suspended chain is believed.
const VERIFIED_FRAMES: usize = 4;

/// The number of return addresses that must agree before a stack counts as a copy of a suspended
/// one. A single one may be what every new coroutine starts with.
const MOVED_FRAMES_MIN: usize = 2;
/// The number of suspended chains tried as the original, latest first.
const MOVED_CHAINS_MAX: usize = 16;
/// The number of values of rsp tried for each.
const MOVED_PLACES_MAX: usize = 32;

impl Chain {
    pub(super) fn new(origin: Origin, sp: u64, high: u64) -> Chain {
        let segment = Segment {
            first: 0,
            high,
            low: sp,
            pending: None,
        };
        Chain {
            frames: Vec::new(),
            segments: alloc::vec![segment],
            origin,
            root_sp: sp,
            rsp: sp,
            resumes_to: sp,
        }
    }

    /// The segment that contains rsp.
    pub(super) fn last(&self) -> Segment {
        *self.segments.last().expect("a chain has a segment")
    }

    pub(super) fn last_mut(&mut self) -> &mut Segment {
        self.segments.last_mut().expect("a chain has a segment")
    }

    /// The innermost frame, if it is in the last segment.
    pub(super) fn top(&self) -> Option<&Held> {
        self.frames[self.last().first..].last()
    }

    /// The limit up to which rsp may rise without leaving the innermost frame.
    pub(super) fn limit(&self) -> u64 {
        let segment = self.last();
        match self.top() {
            Some(top) => top.slot.min(segment.high),
            None => segment.high,
        }
    }

    /// Drops the dead frames of the last segment: those whose slot is below `sp`.
    pub(super) fn pop_below(&mut self, sp: u64) {
        let first = self.last().first;
        while self.frames.len() > first && self.frames.last().is_some_and(|f| f.slot < sp) {
            self.frames.pop();
        }
    }

    /// Drops the segments after `index` and their frames.
    pub(super) fn cut_to_segment(&mut self, index: usize) {
        if let Some(next) = self.segments.get(index + 1) {
            self.frames.truncate(next.first);
            self.segments.truncate(index + 1);
        }
    }

    /// The innermost earlier segment that contains `sp`.
    pub(super) fn earlier_segment(&self, sp: u64) -> Option<usize> {
        let earlier = &self.segments[..self.segments.len() - 1];
        earlier
            .iter()
            .rposition(|s| s.low.wrapping_sub(RESUME_SLACK) <= sp && sp <= s.high)
    }

    /// Whether memory still contains the return addresses of the innermost frames that outlive
    /// `sp`.
    fn verify(&self, sp: u64, world: &mut dyn World) -> bool {
        let first = self.last().first;
        let live = self.frames[first..].iter().rev().filter(|f| f.slot >= sp);
        live.take(VERIFIED_FRAMES)
            .all(|f| world.word(f.slot) == Some(f.pc))
    }

    /// Suspends it at `rsp`.
    pub(super) fn suspend_at(&mut self, rsp: u64) {
        self.rsp = rsp;
        let top = self
            .top()
            .map_or(rsp, |f| f.slot.saturating_add(RETURN_SLACK));
        self.resumes_to = top.max(rsp).min(self.last().high);
    }

    fn resumes_at(&self, sp: u64) -> bool {
        (self.rsp.saturating_sub(RESUME_SLACK)..=self.resumes_to).contains(&sp)
    }

    /// The segment that was left at `sp` for another stack, on which nothing returns any more when
    /// the chain resumes here.
    fn left_at(&self, sp: u64) -> Option<usize> {
        let earlier = self.segments.split_last()?.1;
        let fits = |s: &Segment| {
            let top = self.frames_of(*s).last();
            let top = top.map_or(s.low, |f| f.slot.saturating_add(RETURN_SLACK));
            (s.low.saturating_sub(RESUME_SLACK)..=top.max(s.low).min(s.high)).contains(&sp)
        };
        earlier.iter().rposition(fits)
    }

    fn frames_of(&self, segment: Segment) -> &[Held] {
        let next = self.segments.iter().find(|s| s.first > segment.first);
        &self.frames[segment.first..next.map_or(self.frames.len(), |s| s.first)]
    }

    /// Whether `sp` is in this segment, and memory contains the return addresses of the frames that
    /// outlive `sp`.
    fn is_intact(&self, segment: Segment, sp: u64, world: &mut dyn World) -> bool {
        let frames = self.frames_of(segment).iter().rev();
        let mut live = frames.filter(|f| f.slot >= sp).take(VERIFIED_FRAMES);
        (segment.low..=segment.high).contains(&sp) && live.all(|f| world.word(f.slot) == Some(f.pc))
    }

    /// The distance by which the frames that outlive `sp` were moved, if the stack was copied so
    /// that `sp` became `new`: memory there has all their pcs.
    fn moved(&self, segment: Segment, rsp: u64, new: u64, world: &mut dyn World) -> Option<u64> {
        let frames = self.frames_of(segment);
        let top = frames.last()?.slot.saturating_add(RETURN_SLACK);
        let places = (rsp..=top.min(segment.high)).step_by(8);
        let mut deltas = places
            .take(MOVED_PLACES_MAX)
            .map(|sp| (sp, new.wrapping_sub(sp)));
        deltas.find_map(|(sp, delta)| {
            let live = frames.iter().rev().filter(|f| f.slot >= sp);
            let mut count = 0;
            let all = live.take(VERIFIED_FRAMES).all(|f| {
                count += 1;
                world.word(f.slot.wrapping_add(delta)) == Some(f.pc)
            });
            (all && count >= MOVED_FRAMES_MIN).then_some(delta)
        })
    }

    /// If the stack that the chain last left was copied, with its frames, so that its rsp is `new`,
    /// returns to the copy.
    pub(super) fn return_to_copy(&mut self, new: u64, world: &mut dyn World) -> bool {
        let Some(index) = self.segments.len().checked_sub(2) else {
            return false;
        };
        let segment = self.segments[index];
        // With recursion, a stack looks like a copy of itself some frames away.
        if self.is_intact(segment, new, world) {
            return false;
        }
        match self.moved(segment, segment.low, new, world) {
            Some(delta) => {
                self.cut_to_segment(index);
                self.relocate(delta);
                true
            }
            None => false,
        }
    }

    /// Moves the last segment up by `delta`.
    fn relocate(&mut self, delta: u64) {
        let first = self.last().first;
        for frame in &mut self.frames[first..] {
            frame.slot = frame.slot.wrapping_add(delta);
            frame.cfa = frame.cfa.wrapping_add(delta);
        }
        let segment = self.last_mut();
        segment.high = segment.high.wrapping_add(delta);
    }

    fn holds(&self, sp: u64) -> bool {
        (self.rsp.saturating_sub(RESUME_SLACK)..=self.last().high).contains(&sp)
    }
}

/// The maximum number of suspended chains. Beyond it, the oldest is dropped and counted.
pub(super) const SUSPENDED_MAX: usize = 4096;

/// The stacks of a process that no thread runs on: suspended coroutines. Shared by the trackers of
/// its threads, because a coroutine may continue in another thread.
#[derive(Clone, Debug, Default)]
pub struct Suspended {
    chains: Vec<Chain>,
    forgotten: u64,
}

impl Suspended {
    /// No suspended stacks.
    pub const fn new() -> Suspended {
        Suspended {
            chains: Vec::new(),
            forgotten: 0,
        }
    }

    /// The number of suspended stacks.
    pub fn len(&self) -> usize {
        self.chains.len()
    }

    /// Whether no stacks are suspended.
    pub fn is_empty(&self) -> bool {
        self.chains.is_empty()
    }

    /// The number of stacks dropped because there were too many.
    pub const fn forgotten(&self) -> u64 {
        self.forgotten
    }

    pub(super) fn push(&mut self, chain: Chain) {
        if self.chains.len() == SUSPENDED_MAX {
            self.chains.remove(0);
            self.forgotten += 1;
        }
        self.chains.push(chain);
    }

    /// Takes the chain that was suspended last at exactly this rsp.
    pub(super) fn take_at(&mut self, rsp: u64) -> Option<Chain> {
        let at = self.chains.iter().rposition(|c| c.rsp == rsp)?;
        Some(self.chains.remove(at))
    }

    /// Takes the chain whose stack was copied elsewhere, as Go does when a stack grows, and which
    /// resumes there when rsp becomes `sp`.
    pub(super) fn claim_moved(&mut self, sp: u64, world: &mut dyn World) -> Option<Chain> {
        let latest = (0..self.chains.len()).rev().take(MOVED_CHAINS_MAX);
        let mut moved = latest.filter_map(|index| {
            let chain = &self.chains[index];
            let delta = chain.moved(chain.last(), chain.rsp, sp, world)?;
            Some((index, delta))
        });
        let (index, delta) = moved.next()?;
        let mut chain = self.chains.remove(index);
        chain.relocate(delta);
        Some(chain)
    }

    /// Takes the chain that resumes when rsp becomes `sp`: one suspended exactly there, or
    /// (`anywhere`) one whose stack contains `sp`. Drops chains that memory contradicts.
    pub(super) fn claim(
        &mut self,
        sp: u64,
        anywhere: bool,
        world: &mut dyn World,
    ) -> Option<Chain> {
        loop {
            let fits = |c: &Chain| {
                if anywhere {
                    c.holds(sp)
                } else {
                    c.resumes_at(sp) || c.left_at(sp).is_some()
                }
            };
            // The smallest stack, because one may be in a local array of another.
            let found = self
                .chains
                .iter()
                .enumerate()
                .rev()
                .filter(|(_, c)| fits(c))
                .min_by_key(|(_, c)| c.last().high - c.rsp.min(c.last().high));
            let (index, _) = found?;
            let mut chain = self.chains.remove(index);
            if let Some(segment) = chain
                .left_at(sp)
                .filter(|_| !anywhere && !chain.resumes_at(sp))
            {
                chain.cut_to_segment(segment);
            }
            if chain.verify(sp, world) {
                return Some(chain);
            }
        }
    }
}
