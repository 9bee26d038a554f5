//! The ground truth: the frames that a thread really has.
//!
//! Only the executor of a program knows it, by keeping a shadow stack; an unwinder never does. This
//! module has the true chain, how much of it is known, and the [`Tracker`] that keeps the shadow
//! stack.

mod copies;
pub mod shadow;
mod stacks;
mod stats;
mod tracker;

#[cfg(test)]
mod tests;

pub use stacks::{Cpu, ShadowFrame, Suspended, World};
pub use stats::Stats;
pub use tracker::Tracker;

use crate::address::CodeAddress;
use alloc::vec::Vec;

/// The meaning of a true frame's pc.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum TrueKind {
    /// The innermost frame: the next instruction.
    Top = 0,
    /// A return address: the frame called its callee. The restorer to which a signal handler
    /// returns counts as the handler's caller.
    Call = 1,
    /// Interrupted by a signal: the next instruction, saved in the signal frame.
    Interrupted = 2,
    /// In a kernel, interrupted by an interrupt or exception: the next instruction, in the iret
    /// frame. The callee is the handler's entry code, whose CFA is the interrupted rsp. The entry
    /// code decides where the saved pc is (that of an NMI is copied).
    Trapped = 3,
}

/// A frame of the true chain.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TrueFrame {
    /// The pc: see [`TrueKind`].
    pub pc: u64,
    /// The canonical frame address: rsp in the caller after the return. For the restorer of a
    /// signal frame it is the interrupted rsp; for the outermost known frame it is meaningless.
    pub cfa: u64,
    /// The meaning of `pc`.
    pub kind: TrueKind,
    /// The callee-saved registers in this frame at `pc`, in the order of
    /// [`crate::regs::Reg::CALLEE_SAVED`]. Except in the innermost frame, these are their values at
    /// the entry of the callee. `None` if they were not observed.
    pub saved: Option<[u64; 6]>,
}

impl TrueFrame {
    /// The pc as what it is: a return address, or the next instruction.
    #[inline]
    pub const fn address(&self) -> CodeAddress {
        match self.kind {
            TrueKind::Call => CodeAddress::Return(self.pc),
            TrueKind::Top | TrueKind::Interrupted | TrueKind::Trapped => {
                CodeAddress::Instruction(self.pc)
            }
        }
    }
}

/// Offset from a signal handler's CFA to the saved rip: the ucontext's `gregs[REG_RIP]` (Linux
/// `arch/x86/include/uapi/asm/sigcontext.h`, `struct rt_sigframe`).
const SIGNAL_FRAME_RIP: u64 = 168;

/// The true chain of one sample, innermost first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Truth {
    /// Nothing is known, for example because the program ran without a shadow stack.
    #[default]
    Unknown,
    /// The innermost frames; those outside them are unknown.
    Known(Vec<TrueFrame>),
    /// All frames, including the root.
    Complete(Vec<TrueFrame>),
}

impl Truth {
    /// The known frames.
    pub fn frames(&self) -> &[TrueFrame] {
        match self {
            Truth::Unknown => &[],
            Truth::Known(frames) | Truth::Complete(frames) => frames,
        }
    }

    /// Whether the frames include the root.
    pub const fn is_complete(&self) -> bool {
        matches!(self, Truth::Complete(_))
    }

    /// The address of the word that holds the pc of frame `index`. `None` for the innermost frame,
    /// for a [`TrueKind::Trapped`] one, and for the interrupted frame if the innermost frame is the
    /// restorer (its signal frame is then at the live rsp).
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
