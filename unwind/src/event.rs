//! What happens during a walk, typed. Nobody pays for events that nobody wants: a sink without
//! [`crate::chain::Sink::DETAIL`] compiles them away.

use crate::address::CodeAddress;
#[cfg(feature = "kernel")]
use crate::kernel::State;
use crate::reason::Reason;
use crate::regs::{Reg, Regs};

/// One event, in the order of the walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The walk begins.
    Started {
        /// With these registers.
        regs: Regs,
        /// Frames up to this stack address are skipped.
        first_frame: Option<u64>,
    },
    /// A frame was found and not reported, because it is not above the mark.
    Skipped {
        /// The frame's pc.
        pc: CodeAddress,
        /// The frame's sp.
        sp: u64,
        /// The mark.
        first_frame: u64,
    },
    /// The first table has no rule, or its rule failed; the fallback is asked.
    Fallback {
        /// At this address.
        pc: CodeAddress,
        /// Because of this.
        cause: Reason,
    },
    /// A register's value is unknown from here on. The walk goes on without it, and fails only
    /// if a rule needs it.
    RegisterLost {
        /// In the caller of this frame.
        pc: CodeAddress,
        /// The register.
        reg: Reg,
        /// Why.
        cause: Reason,
    },
    /// A kernel's unwinder is in this state.
    #[cfg(feature = "kernel")]
    State(State),
    /// The caller's stack is another one.
    StackChanged {
        /// sp before.
        from: u64,
        /// sp after.
        to: u64,
    },
}
