//! The frames of a shadow stack, the stacks they are on, and suspended chains of frames
//! (coroutines). The `tracker` changes them.

use super::TrueKind;
use alloc::collections::VecDeque;
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
    /// Whether code may return to `address` although no call was seen: the program has put it on its stack,
    /// or into a register. In executable memory, if a program is not known to do otherwise.
    fn is_returned_to(&mut self, address: u64) -> bool {
        self.is_code(address)
    }
    /// Whether the code at `address` is that of a tracer, to which functions return whose return address it
    /// has taken, and which then returns for them (in Linux those of kretprobes and the function graph
    /// tracer).
    fn is_trampoline(&mut self, address: u64) -> bool {
        let _ = address;
        false
    }
    /// Whether a stack may be left with a chain of its own that goes on later (a coroutine), or be copied. A
    /// kernel's stacks other than those of tasks are left for good, and switches between tasks are known.
    fn has_coroutines(&self) -> bool {
        true
    }
    /// Whether `address` is in executable memory that shows no file.
    fn is_generated(&mut self, address: u64) -> bool;
    /// Whether both addresses are in the same mapping.
    fn same_mapping(&mut self, a: u64, b: u64) -> bool;
    /// Whether a general register of the thread has this value, after the instruction that was
    /// executed.
    fn is_in_register(&mut self, value: u64) -> bool;
}

/// A frame of the shadow stack: the place to which a call or signal will return.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShadowFrame {
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
    /// Whether a tracer has put the address of its own code in place of the return address, which it will
    /// return to instead ([`World::is_trampoline`]).
    pub(super) taken: bool,
    /// Whether it was made by a call to the next instruction, which only reads its own address.
    pub(super) thunk: bool,
    /// Whether its return address was popped into a register. The frame continues without a slot,
    /// and `slot` equals `cfa`.
    pub(super) in_register: bool,
    /// Whether it was made by a jump, because a return address was found where a return will find
    /// it.
    pub(super) planted: bool,
    /// The address at which its callee was entered.
    pub(super) entry: u64,
}

impl ShadowFrame {
    /// Whether its return address is in memory rather than popped into a register.
    #[inline]
    pub const fn is_in_memory(&self) -> bool {
        !self.in_register
    }

    /// Whether a tracer has put another address in place of the return address.
    #[inline]
    pub const fn is_taken(&self) -> bool {
        self.taken
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

/// The innermost frame of a chain may be none: what will be its return address may be data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DoubtfulFrame {
    /// The number of frames, with the doubtful one. None of them is known.
    pub(super) frames: usize,
    /// The jump that makes it a frame, and its target.
    pub(super) site: (u64, u64),
}

/// A chain of frames, the outermost first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Chain {
    pub(super) frames: Vec<ShadowFrame>,
    /// The stacks that it runs through; never empty.
    pub(super) segments: Vec<Segment>,
    pub(super) origin: Origin,
    /// rsp at the start of the chain, even if its stack was moved since.
    pub(super) root_sp: u64,
    /// rsp when it was suspended.
    pub(super) rsp: u64,
    /// The highest rsp at which it then resumes.
    pub(super) resumes_to: u64,
    /// If it is lent by a thread that does not run: see [`Suspended::lend`].
    pub(super) loan: Option<u64>,
    /// The doubtful frames, the outermost first.
    pub(super) doubts: Vec<DoubtfulFrame>,
}

/// The maximum distance from the recorded rsp at which a suspended chain counts as resumed: room
/// for the pushes and pops of a switch function.
const RESUME_SLACK: u64 = 256;
/// The same, upwards from the slot of the innermost frame: the switch returns.
pub(super) const RETURN_SLACK: u64 = 64;
/// The number of frames compared with memory before a suspended chain is believed.
pub(super) const VERIFIED_FRAMES: usize = 4;

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
            loan: None,
            doubts: Vec::new(),
        }
    }

    /// The number of outermost frames that are not known.
    #[inline]
    pub(super) fn hidden(&self) -> usize {
        self.doubts.last().map_or(0, |doubt| doubt.frames)
    }

    /// The segment that contains rsp.
    pub(super) fn last(&self) -> Segment {
        *self.segments.last().expect("a chain has a segment")
    }

    pub(super) fn last_mut(&mut self) -> &mut Segment {
        self.segments.last_mut().expect("a chain has a segment")
    }

    /// The innermost frame, if it is in the last segment.
    pub(super) fn top(&self) -> Option<&ShadowFrame> {
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
        let mut live = self.outlive(sp).take(VERIFIED_FRAMES);
        live.all(|f| world.word(f.slot) == Some(f.pc))
    }

    /// The frames of the last segment that outlive `sp`, innermost first.
    fn outlive(&self, sp: u64) -> impl Iterator<Item = &ShadowFrame> {
        let frames = &self.frames[self.last().first..];
        frames.iter().rev().filter(move |f| f.slot >= sp)
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

    pub(super) fn frames_of(&self, segment: Segment) -> &[ShadowFrame] {
        let next = self.segments.iter().find(|s| s.first > segment.first);
        &self.frames[segment.first..next.map_or(self.frames.len(), |s| s.first)]
    }

    /// Whether `sp` is in this segment, and memory contains the return addresses of the frames that
    /// outlive `sp`.
    pub(super) fn is_intact(&self, segment: Segment, sp: u64, world: &mut dyn World) -> bool {
        let frames = self.frames_of(segment).iter().rev();
        let mut live = frames.filter(|f| f.slot >= sp).take(VERIFIED_FRAMES);
        (segment.low..=segment.high).contains(&sp) && live.all(|f| world.word(f.slot) == Some(f.pc))
    }

    fn holds(&self, sp: u64) -> bool {
        (self.rsp.saturating_sub(RESUME_SLACK)..=self.last().high).contains(&sp)
    }
}

/// The maximum number of suspended chains. Beyond it, the oldest is dropped and counted.
pub(super) const SUSPENDED_MAX: usize = 4096;

/// The maximum number of chains whose memory has another use. Beyond it, the oldest is dropped.
const DISPLACED_MAX: usize = 1024;

/// The stacks of a process that no thread runs on: suspended coroutines. Shared by the trackers of
/// its threads, because a coroutine may continue in another thread.
#[derive(Clone, Debug, Default)]
pub struct Suspended {
    pub(super) chains: Vec<Chain>,
    /// Chains of whose stacks the memory has another use: they have ended, or were moved.
    pub(super) displaced: VecDeque<Chain>,
    loans: u64,
    forgotten: u64,
}

impl Suspended {
    /// No suspended stacks.
    pub const fn new() -> Suspended {
        Suspended {
            chains: Vec::new(),
            displaced: VecDeque::new(),
            loans: 0,
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
        if self.chains.len() >= SUSPENDED_MAX
            && let Some(oldest) = self.chains.iter().position(|c| c.loan.is_none())
        {
            self.chains.remove(oldest);
            self.forgotten += 1;
        }
        self.chains.push(chain);
    }

    /// Lets other threads resume a chain that a thread has left for another stack, on which it is
    /// still running. Returns the number of the loan.
    pub(super) fn lend(&mut self, mut chain: Chain) -> u64 {
        self.loans += 1;
        chain.loan = Some(self.loans);
        self.push(chain);
        self.loans
    }

    /// Ends a loan. Returns false if the chain was resumed elsewhere.
    pub(super) fn end_loan(&mut self, loan: u64) -> bool {
        let lent = self.chains.iter().rposition(|c| c.loan == Some(loan));
        if let Some(index) = lent {
            self.chains.remove(index);
        }
        lent.is_some()
    }

    /// Takes the chain that was suspended last at exactly this rsp.
    pub(super) fn take_at(&mut self, rsp: u64) -> Option<Chain> {
        let at = self.chains.iter().rposition(|c| c.rsp == rsp)?;
        Some(self.chains.remove(at))
    }

    /// Takes the chain that resumes when rsp becomes `sp`: one suspended exactly there, or one
    /// whose stack contains `sp`, as `claim` says. Sets chains aside that memory contradicts.
    pub(super) fn claim(&mut self, sp: u64, claim: Claim, world: &mut dyn World) -> Option<Chain> {
        loop {
            let fits = |c: &Chain| match claim {
                Claim::Exact => c.resumes_at(sp) || c.left_at(sp).is_some(),
                Claim::Inside => c.holds(sp) && c.outlive(sp).next().is_some(),
                Claim::Anywhere => c.holds(sp),
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

            // Taken out before memory is read: a chain that is contradicted must not be found
            // again.
            let mut chain = self.chains.remove(index);

            // A chain can also be resumed at one of its outer segments; what is inside of that is
            // over.
            if let Some(segment) = chain
                .left_at(sp)
                .filter(|_| claim == Claim::Exact && !chain.resumes_at(sp))
            {
                chain.cut_to_segment(segment);
            }

            if chain.verify(sp, world) {
                return Some(chain);
            }

            // Memory contradicts this one: the next is tried.
            self.displace(chain);
        }
    }

    /// Keeps a chain whose memory has another use, in case that its stack was moved.
    pub(super) fn displace(&mut self, chain: Chain) {
        if self.displaced.len() == DISPLACED_MAX {
            self.displaced.pop_front();
        }
        self.displaced.push_back(chain);
    }
}

/// Which suspended chain is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Claim {
    /// One that was suspended there.
    Exact,
    /// One whose stack contains the address, and has frames above it.
    Inside,
    /// One whose stack contains the address.
    Anywhere,
}
