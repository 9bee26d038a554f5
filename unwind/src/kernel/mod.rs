//! The kernel's own unwinders, modelled exactly: ORC, frame pointer and guess, each with its state
//! machine, on the kernel's stacks.
//!
//! They do not share the walk of the other unwinders (`walk`), because their state after every step
//! must equal `struct unwind_state`. They take their input from [`Kernel`]: code ([`Code`]),
//! memory, the task with its stacks ([`Task`]), and the version ([`Version`], which names the
//! differences). [`trace`] and [`perf`] are their callers.
//!
//! Sources: Linux `arch/x86/kernel/unwind_orc.c`, `unwind_frame.c`, `unwind_guess.c`,
//! `dumpstack_64.c`, `stacktrace.c`, `arch/x86/events/core.c`, of 6.1 and 6.12. Out of scope:
//! opening a kernel's image, recordings.

mod boundary;
mod callchain;
mod code;
mod end;
mod entry_regs;
mod fp;
mod glide;
mod guess;
mod hijack;
mod orc;
pub mod perf;
mod stacks;
mod task;
#[cfg(test)]
mod tests;
pub mod trace;
mod unwinder;
mod user;
mod version;

pub use boundary::{UserBoundary, UserRegs};
pub use callchain::{
    Callchain, CallchainEntry, CallchainOptions, Context, UserOutcome, UserWalk, get_perf_callchain,
};
pub use code::{
    Code, FindCache, FoundEntry, FoundRow, Generated, KNOWN_SYMBOLS, KnownFunctions, Source,
};
pub use end::Ended;
pub use entry_regs::{EntryRegs, RegsPtr, is_user_cs};
pub use fp::FpState;
pub use guess::GuessState;
pub use hijack::Cursors;
pub use orc::OrcState;
pub use stacks::{NoStack, PAGE_SIZE, StackInfo, StackType, THREAD_SIZE};
pub use task::{GraphReturn, Rethook, Task};
pub use unwinder::KernelUnwinder;
pub use user::{
    Hijack, Uretprobes, UserChain, UserEnd, UserFound, UserFrame, UserSpace, perf_callchain_user,
    unwind_user,
};
pub use version::{GraphSearch, Version};

use crate::memory::{Memory, MemoryError};
use crate::pt_regs::offset_of;
use crate::regs::Regs;

/// The unwinder that a kernel was built with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum UnwinderKind {
    /// `CONFIG_UNWINDER_ORC`
    Orc,
    /// `CONFIG_UNWINDER_FRAME_POINTER`
    Fp,
    /// `CONFIG_UNWINDER_GUESS`
    Guess,
}

impl UnwinderKind {
    /// All kinds.
    pub const ALL: [UnwinderKind; 3] = [UnwinderKind::Orc, UnwinderKind::Fp, UnwinderKind::Guess];

    /// The unwinder's name on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            UnwinderKind::Orc => "orc",
            UnwinderKind::Fp => "fp",
            UnwinderKind::Guess => "guess",
        }
    }
}

/// The input of an unwinder.
#[derive(Debug)]
pub struct Kernel<'a, M: ?Sized> {
    /// The kernel's code with its tables.
    pub code: &'a Code,
    /// The task whose stack is unwound.
    pub task: &'a Task,
    /// The stacks of the task and the processor.
    pub memory: &'a M,
}

impl<M: ?Sized> Clone for Kernel<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: ?Sized> Copy for Kernel<'_, M> {}

/// The start of a walk: the arguments of `__unwind_start`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum StartFrom<'a> {
    /// These registers (`regs`).
    Regs(&'a Regs),
    /// The unwinder's own registers: rip, rsp and rbp inside `__unwind_start`.
    Own(&'a Regs),
    /// Where the task left the processor (`task->thread.sp`).
    Inactive,
}

/// `struct unwind_state` of any unwinder. A recorded state whose stack ends at 0 is brief: it has
/// only the stack's type and, for ORC, error, signal, full_regs, ip, sp and bp; for the frame
/// pointer, error, ip and bp; for the guess, sp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// State of the ORC unwinder.
    Orc(OrcState),
    /// State of the frame-pointer unwinder.
    Fp(FpState),
    /// State of the guess unwinder.
    Guess(GuessState),
}

impl State {
    /// The current stack and the `stack_mask`.
    pub const fn stack(&self) -> (&StackInfo, u64) {
        match self {
            State::Orc(s) => (&s.stack, s.stack_mask),
            State::Fp(s) => (&s.stack, s.stack_mask),
            State::Guess(s) => (&s.stack, s.stack_mask),
        }
    }

    /// The unwinder that this state belongs to.
    pub const fn kind(&self) -> UnwinderKind {
        match self {
            State::Orc(_) => UnwinderKind::Orc,
            State::Fp(_) => UnwinderKind::Fp,
            State::Guess(_) => UnwinderKind::Guess,
        }
    }

    /// Whether the walk is done (`unwind_done`).
    pub const fn is_done(&self) -> bool {
        matches!(self.stack().0.kind, StackType::Unknown)
    }

    /// Whether the walk is no longer reliable (`unwind_error`).
    pub const fn is_error(&self) -> bool {
        match self {
            State::Orc(s) => s.error,
            State::Fp(s) => s.error,
            State::Guess(_) => false,
        }
    }
}

/// A running unwinder.
#[derive(Debug)]
pub struct Unwind<'a, M: ?Sized> {
    kernel: Kernel<'a, M>,
    start: &'a Regs,
    state: State,
    finds: &'a mut FindCache,
    found: Option<FoundEntry>,
    ended: Option<Ended>,
}

impl<'a, M: Memory + ?Sized> Unwind<'a, M> {
    /// `__unwind_start`, with the mark up to which frames are skipped. `skipped` is called for
    /// every state on the way there, including the very first.
    pub fn start(
        kind: UnwinderKind,
        kernel: Kernel<'a, M>,
        from: StartFrom<'a>,
        first_frame: u64,
        finds: &'a mut FindCache,
        skipped: &mut dyn FnMut(&Unwind<'_, M>),
    ) -> Self {
        let start = match from {
            StartFrom::Regs(regs) | StartFrom::Own(regs) => regs,
            // Its registers are only where its switch pushed them.
            StartFrom::Inactive => &Regs::UNKNOWN,
        };

        // A state starts as zeros, as `__unwind_start` clears it.
        let state = match kind {
            UnwinderKind::Orc => State::Orc(OrcState::default()),
            UnwinderKind::Fp => State::Fp(FpState::default()),
            UnwinderKind::Guess => State::Guess(GuessState::default()),
        };

        let mut unwind = Unwind {
            kernel,
            start,
            state,
            finds,
            found: None,
            ended: None,
        };

        match kind {
            UnwinderKind::Orc => orc::start(&mut unwind, from, first_frame, skipped),
            UnwinderKind::Fp => fp::start(&mut unwind, from, first_frame, skipped),
            UnwinderKind::Guess => guess::start(&mut unwind, first_frame, skipped),
        }

        unwind
    }

    /// `unwind_next_frame`. Returns false if the walk is done.
    #[inline]
    pub fn next_frame(&mut self) -> bool {
        if self.state.is_done() {
            return false;
        }
        match self.state {
            State::Orc(_) => orc::next_frame(self),
            State::Fp(state) => fp::next_frame(self, state),
            State::Guess(state) => guess::next_frame(self, state),
        }
    }

    /// The current state.
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// The ORC entry that produced the state.
    pub const fn found(&self) -> Option<&FoundEntry> {
        self.found.as_ref()
    }

    /// Why the walk is done.
    pub const fn ended(&self) -> Option<&Ended> {
        self.ended.as_ref()
    }

    /// The unwinder's input.
    pub const fn kernel(&self) -> &Kernel<'a, M> {
        &self.kernel
    }

    /// The address of the current frame; 0 if the state has none.
    pub const fn ip(&self) -> u64 {
        match &self.state {
            State::Orc(s) => s.ip,
            State::Fp(s) => s.ip,
            State::Guess(_) => 0,
        }
    }

    /// `unwind_get_return_address`; `None` where the kernel returns 0: done, or not kernel text.
    #[inline]
    pub fn return_address(&self) -> Option<u64> {
        if self.state.is_done() {
            return None;
        }
        let ip = match self.state {
            State::Orc(s) => s.ip,
            State::Fp(s) => s.ip,
            State::Guess(s) => return guess::return_address(self, s),
        };
        self.kernel.code.is_text(ip).then_some(ip)
    }

    /// `unwind_get_return_address_ptr`: the address of the return address. Also `None` if that is
    /// in the start's registers.
    pub fn return_address_ptr(&self) -> Option<u64> {
        if self.state.is_done() {
            return None;
        }
        let in_regs = |at: u64| at.wrapping_add(offset_of(crate::regs::Reg::Rip));
        match self.state {
            State::Orc(s) => match s.regs {
                RegsPtr::At(at) => Some(in_regs(at)),
                RegsPtr::Start => None,
                RegsPtr::None => s.sp.checked_sub(8),
            },
            State::Fp(s) => match s.regs {
                RegsPtr::At(at) => Some(in_regs(at)),
                RegsPtr::Start => None,
                RegsPtr::None => Some(s.bp.wrapping_add(8)),
            },
            State::Guess(_) => None,
        }
    }

    /// `unwind_get_entry_regs`
    pub fn entry_regs(&self) -> Option<EntryRegs> {
        EntryRegs::of(&self.state)
    }

    /// Whether the current registers are those of user space. Unreadable registers are not.
    pub fn in_user_regs(&self) -> bool {
        let regs = match self.state {
            State::Orc(s) => s.regs,
            State::Fp(s) => s.regs,
            State::Guess(_) => RegsPtr::None,
        };
        self.is_user(regs).unwrap_or(false)
    }

    /// The current registers, if the walk leaves the kernel with them: either they are marked as
    /// those of user space, or their ip is not kernel code. `None` for others, and for those of the
    /// start.
    pub fn user_regs(&self) -> Option<UserRegs> {
        let at = match self.state {
            State::Orc(s) => s.regs.address()?,
            State::Fp(s) => s.regs.address()?,
            State::Guess(_) => return None,
        };
        let read = |reg| {
            RegsPtr::At(at)
                .read(self.start, self.kernel.memory, reg)
                .ok()
        };
        let (ip, sp) = (read(crate::regs::Reg::Rip)?, read(crate::regs::Reg::Rsp)?);
        let leaves = self.in_user_regs() || !self.kernel.code.is_text(self.ip());
        leaves.then_some(UserRegs { at, ip, sp })
    }

    fn is_user(&self, regs: RegsPtr) -> Result<bool, MemoryError> {
        if !regs.is_some() {
            return Ok(false);
        }
        let cs = regs.read(self.start, self.kernel.memory, crate::regs::Reg::Cs)?;
        Ok(is_user_cs(cs))
    }

    /// Ends the walk in error, unlike the kernel: what it read was not recorded.
    fn not_recorded(&mut self, error: MemoryError) -> bool {
        self.end(Ended::NotRecorded(error), true)
    }

    /// Ends the walk, which the state shows by the type of its stack.
    fn end(&mut self, why: Ended, error: bool) -> bool {
        self.ended = Some(why);
        match &mut self.state {
            State::Orc(s) => {
                s.error |= error;
                s.stack.kind = StackType::Unknown;
            }
            State::Fp(s) => {
                s.error |= error;
                s.stack.kind = StackType::Unknown;
            }
            State::Guess(s) => s.stack.kind = StackType::Unknown,
        }
        false
    }
}
