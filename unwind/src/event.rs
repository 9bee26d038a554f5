//! Typed events of a walk. They cost nothing unless the sink asks for them with
//! [`crate::chain::Sink::DETAIL`]: otherwise they are compiled out.

use crate::address::CodeAddress;
#[cfg(feature = "kernel")]
use crate::kernel::State;
use crate::reason::Reason;
use crate::regs::{Reg, Regs};

/// An event, reported in the order of the walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The walk starts.
    Started {
        /// The registers at the start.
        regs: Regs,
        /// Frames up to this stack address are skipped.
        first_frame: Option<u64>,
    },
    /// A frame was found but not reported, because it is not above `first_frame`.
    Skipped {
        /// The frame's pc.
        pc: CodeAddress,
        /// The frame's sp.
        sp: u64,
        /// The mark: only frames above this stack address are reported.
        first_frame: u64,
    },
    /// The first table has no rule, or its rule failed, so the fallback is used.
    Fallback {
        /// The address looked up.
        pc: CodeAddress,
        /// Why the first table did not serve.
        cause: Reason,
    },
    /// A register is unknown from here on. The walk goes on without it and fails only if a rule
    /// needs it.
    RegisterLost {
        /// The frame whose caller lacks the register.
        pc: CodeAddress,
        /// The register.
        reg: Reg,
        /// Why it is unknown.
        cause: Reason,
    },
    /// The kernel unwinder's state.
    #[cfg(feature = "kernel")]
    State(State),
    /// The caller is on a different stack.
    StackChanged {
        /// sp of the callee.
        from: u64,
        /// sp of the caller.
        to: u64,
    },
}
