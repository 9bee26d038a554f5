//! The frames that a shadow stack holds, the stacks they lie on, and the chains of frames that
//! nobody runs at the moment (coroutines). How they change is the `tracker`'s business.

use super::TrueKind;
use alloc::vec::Vec;

/// What a tracker sees of a thread at an instruction boundary.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cpu {
    /// The next instruction.
    pub rip: u64,
    /// The stack pointer.
    pub rsp: u64,
    /// rbx, rbp, r12 to r15, as [`crate::regs::Reg::CALLEE_SAVED`] orders them.
    pub saved: [u64; 6],
}

/// What a tracker asks of whoever executes. All of it is asked rarely: at stack switches.
pub trait World {
    /// The 8 bytes at `address`, if they can be read.
    fn word(&mut self, address: u64) -> Option<u64>;
    /// Is `address` in executable memory?
    fn is_code(&mut self, address: u64) -> bool;
    /// Do both addresses lie in one mapping?
    fn same_mapping(&mut self, a: u64, b: u64) -> bool;
}

/// A frame of the shadow stack: what a call, or a signal, will go back to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Address of the word that holds `pc`.
    pub slot: u64,
    /// rsp after going back.
    pub cfa: u64,
    /// Where the thread goes back to.
    pub pc: u64,
    /// Callee-saved registers when the frame was made: at the callee's or handler's entry.
    pub saved: [u64; 6],
    /// [`TrueKind::Call`], [`TrueKind::Interrupted`] or [`TrueKind::Trapped`].
    pub kind: TrueKind,
    /// The program wrote the slot by an instruction that the tracker has seen.
    pub(super) rewritten: bool,
    /// Made by a call to the next instruction, which wants its address and no frame.
    pub(super) thunk: bool,
    /// Its return address was popped into a register. The frame lives on, without a slot:
    /// `slot` is then `cfa`.
    pub(super) in_register: bool,
}

impl Held {
    /// Does memory hold its return address? Else it was popped into a register.
    #[inline]
    pub const fn is_in_memory(&self) -> bool {
        !self.in_register
    }
}

/// A stack, or a part of one, that a chain runs through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    /// Index of its first frame.
    pub(super) first: usize,
    /// The highest rsp that belongs to it.
    pub(super) high: u64,
    /// rsp when the chain went on to the next segment; without meaning in the last one.
    pub(super) low: u64,
    /// How it was entered, while that is undecided. Never of a chain's first segment.
    pub(super) pending: Option<Pending>,
}

/// rsp was loaded with an address of another stack, and the next transfer of control tells what
/// it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pending {
    /// The new rsp lies among the frames of the segment before: a `longjmp`, or a coroutine's
    /// stack in a local array.
    pub(super) nested: bool,
    /// Too far to be `alloca`.
    pub(super) far: bool,
}

/// Where a chain's knowledge begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// At its root.
    Root,
    /// In the middle: there are frames outside that nobody saw being made.
    Middle,
}

/// One chain of frames, the outermost first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Chain {
    pub(super) frames: Vec<Held>,
    /// Never empty.
    pub(super) segments: Vec<Segment>,
    pub(super) origin: Origin,
    /// rsp where the chain began, wherever its stack was moved since.
    pub(super) root_sp: u64,
    /// rsp when it was suspended.
    pub(super) rsp: u64,
}

/// How far from the recorded rsp a suspended chain is still taken for resumed: what a switch
/// function pushes and pops.
const RESUME_SLACK: u64 = 256;
/// From the slot of the innermost frame upward: the switch returns.
const RETURN_SLACK: u64 = 64;
/// Frames that are compared with memory before a suspended chain is believed.
const VERIFIED_FRAMES: usize = 4;

/// A stack is taken for a copy of a suspended one only if so many return addresses agree: a
/// single one may be what every new coroutine begins with.
const MOVED_FRAMES_MIN: usize = 2;
/// Suspended chains that are tried for that, the latest first.
const MOVED_CHAINS_MAX: usize = 16;
/// Values of rsp that are tried for each.
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
        }
    }

    /// The segment that rsp is in.
    pub(super) fn last(&self) -> Segment {
        *self.segments.last().expect("a chain has a segment")
    }

    pub(super) fn last_mut(&mut self) -> &mut Segment {
        self.segments.last_mut().expect("a chain has a segment")
    }

    /// The innermost frame, if it lies in the last segment.
    pub(super) fn top(&self) -> Option<&Held> {
        self.frames[self.last().first..].last()
    }

    /// rsp may rise up to here without leaving the innermost frame.
    pub(super) fn limit(&self) -> u64 {
        let segment = self.last();
        match self.top() {
            Some(top) => top.slot.min(segment.high),
            None => segment.high,
        }
    }

    /// Drops the frames of the last segment whose slot is below `sp`: they are dead.
    pub(super) fn pop_below(&mut self, sp: u64) {
        let first = self.last().first;
        while self.frames.len() > first && self.frames.last().is_some_and(|f| f.slot < sp) {
            self.frames.pop();
        }
    }

    /// Drops the segments behind `index`, with their frames.
    pub(super) fn cut_to_segment(&mut self, index: usize) {
        if let Some(next) = self.segments.get(index + 1) {
            self.frames.truncate(next.first);
            self.segments.truncate(index + 1);
        }
    }

    /// The innermost earlier segment that `sp` lies in.
    pub(super) fn earlier_segment(&self, sp: u64) -> Option<usize> {
        let earlier = &self.segments[..self.segments.len() - 1];
        earlier
            .iter()
            .rposition(|s| s.low.wrapping_sub(RESUME_SLACK) <= sp && sp <= s.high)
    }

    /// Is memory still what the innermost frames say, as far as they outlive `sp`?
    fn verify(&self, sp: u64, world: &mut dyn World) -> bool {
        let first = self.last().first;
        let live = self.frames[first..].iter().rev().filter(|f| f.slot >= sp);
        live.take(VERIFIED_FRAMES)
            .all(|f| world.word(f.slot) == Some(f.pc))
    }

    fn resumes_at(&self, sp: u64) -> bool {
        let top = self
            .top()
            .map_or(self.rsp, |f| f.slot.saturating_add(RETURN_SLACK));
        let high = top.max(self.rsp).min(self.last().high);
        (self.rsp.saturating_sub(RESUME_SLACK)..=high).contains(&sp)
    }

    fn frames_of(&self, segment: Segment) -> &[Held] {
        let next = self.segments.iter().find(|s| s.first > segment.first);
        &self.frames[segment.first..next.map_or(self.frames.len(), |s| s.first)]
    }

    /// Is `sp` in this segment, and memory what its frames say that outlive `sp`?
    fn is_intact(&self, segment: Segment, sp: u64, world: &mut dyn World) -> bool {
        let frames = self.frames_of(segment).iter().rev();
        let mut live = frames.filter(|f| f.slot >= sp).take(VERIFIED_FRAMES);
        (segment.low..=segment.high).contains(&sp) && live.all(|f| world.word(f.slot) == Some(f.pc))
    }

    /// How far the frames that outlive `sp` were moved, if the stack was copied so that `sp`
    /// became `new`: memory there holds all their pcs.
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

    /// The stack that the chain left last, with its frames, was copied so that rsp is `new` there:
    /// goes back to the copy.
    pub(super) fn return_to_copy(&mut self, new: u64, world: &mut dyn World) -> bool {
        let Some(index) = self.segments.len().checked_sub(2) else {
            return false;
        };
        let segment = self.segments[index];
        // Where functions recurse, a stack looks like a copy of itself some frames away.
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

    /// The last segment lies `delta` farther up.
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

/// Suspended chains kept; beyond, the oldest is forgotten, and counted.
pub(super) const SUSPENDED_MAX: usize = 4096;

/// The stacks of one process that no thread runs on: suspended coroutines. Shared by the
/// trackers of its threads, since a coroutine may go on in another thread.
#[derive(Clone, Debug, Default)]
pub struct Suspended {
    chains: Vec<Chain>,
    forgotten: u64,
}

impl Suspended {
    /// None.
    pub const fn new() -> Suspended {
        Suspended {
            chains: Vec::new(),
            forgotten: 0,
        }
    }

    /// How many stacks are suspended.
    pub fn len(&self) -> usize {
        self.chains.len()
    }

    /// Is none?
    pub fn is_empty(&self) -> bool {
        self.chains.is_empty()
    }

    /// How many had to be forgotten, because there were too many.
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

    /// Takes the chain whose stack was copied elsewhere, as Go does when a stack grows, and that
    /// is resumed there when rsp becomes `sp`.
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

    /// Takes the chain that is resumed when rsp becomes `sp`: one that was suspended just there,
    /// or (`anywhere`) one whose stack holds `sp`. Chains that memory contradicts are dropped.
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
                    c.resumes_at(sp)
                }
            };
            // The smallest stack: one may lie in a local array of another.
            let found = self
                .chains
                .iter()
                .enumerate()
                .rev()
                .filter(|(_, c)| fits(c))
                .min_by_key(|(_, c)| c.last().high - c.rsp.min(c.last().high));
            let (index, _) = found?;
            let chain = self.chains.remove(index);
            if chain.verify(sp, world) {
                return Some(chain);
            }
        }
    }
}
