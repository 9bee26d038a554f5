//! The truth: which frames a thread really has.
//!
//! It is known to whoever executes the program, because a shadow stack is kept beside it; never
//! to an unwinder. Here are the true chain and the words for how much of it is known, and the
//! [`Tracker`] that keeps the shadow stack.

pub mod shadow;
mod stacks;
mod stats;
mod tracker;

#[cfg(test)]
mod tests;

pub use stacks::{Cpu, Held, Suspended, World};
pub use stats::Stats;
pub use tracker::Tracker;

use alloc::vec::Vec;

/// What a true frame's pc is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum TrueKind {
    /// The innermost frame: the next instruction.
    Top = 0,
    /// A return address: the frame called the one inside it. The restorer that a signal handler
    /// returns to counts as its caller.
    Call = 1,
    /// Interrupted by a signal: the next instruction, saved in the signal frame.
    Interrupted = 2,
    /// In a kernel, interrupted by an interrupt or an exception: the next instruction, in the frame
    /// that `iret` takes. The frame inside it is the handler's entry code, whose CFA is the
    /// interrupted rsp; where the saved pc is, that code decides (an NMI's is copied).
    Trapped = 3,
}

/// A frame of the true chain.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TrueFrame {
    /// The pc: see [`TrueKind`].
    pub pc: u64,
    /// The canonical frame address: rsp in the caller after the return. For the restorer of a
    /// signal frame it is the interrupted rsp; for the outermost frame given it says nothing.
    pub cfa: u64,
    /// What `pc` is.
    pub kind: TrueKind,
    /// The callee-saved registers in this frame at `pc`, in the order of
    /// [`crate::regs::Reg::CALLEE_SAVED`]: for all but the innermost, their values at the entry
    /// of the frame inside it. `None` where nobody saw them.
    pub saved: Option<[u64; 6]>,
}

/// From a signal handler's CFA to the saved rip: the ucontext's `gregs[REG_RIP]`
/// (Linux `arch/x86/include/uapi/asm/sigcontext.h`, `struct rt_sigframe`).
const SIGNAL_FRAME_RIP: u64 = 168;

/// The true chain of one sample, innermost first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Truth {
    /// Nobody executed the program with a shadow stack.
    #[default]
    Unknown,
    /// These innermost frames are true; what lies outside of them is not known.
    Known(Vec<TrueFrame>),
    /// These are all frames, the root included.
    Complete(Vec<TrueFrame>),
}

impl Truth {
    /// The frames that are known.
    pub fn frames(&self) -> &[TrueFrame] {
        match self {
            Truth::Unknown => &[],
            Truth::Known(frames) | Truth::Complete(frames) => frames,
        }
    }

    /// Is the root among the frames?
    pub const fn is_complete(&self) -> bool {
        matches!(self, Truth::Complete(_))
    }

    /// The address of the word that holds the pc of frame `index`; `None` for the innermost, for
    /// one that is [`TrueKind::Trapped`], and for the interrupted frame while the innermost is the restorer (its signal frame is at the
    /// live rsp then).
    pub fn slot(&self, index: usize) -> Option<u64> {
        let frames = self.frames();
        match frames.get(index)?.kind {
            TrueKind::Top | TrueKind::Trapped => None,
            TrueKind::Call => Some(frames.get(index.checked_sub(1)?)?.cfa.wrapping_sub(8)),
            TrueKind::Interrupted => Some(
                frames
                    .get(index.checked_sub(2)?)?
                    .cfa
                    .wrapping_add(SIGNAL_FRAME_RIP),
            ),
        }
    }
}
