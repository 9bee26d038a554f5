//! What a debugger stops a run for: addresses of instructions, accesses to memory, and the end of a
//! step. Where a run meets it is found in `find`.

use std::ops::Range;

/// An access to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A write.
    Write,
    /// A read.
    Read,
    /// A read or a write.
    Any,
}

/// Memory that is watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watch {
    /// The addresses.
    pub range: Range<u64>,
    /// The accesses that count: those of instructions. What the kernel writes for a system call or a
    /// signal does not count, as with the debug registers of a processor.
    pub access: Access,
}

/// The end of a step: a thread executes the next instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Goal {
    /// The thread.
    pub tid: u32,
    /// The least stack pointer: that of the caller, if the step goes over a call.
    pub rsp_min: u64,
    /// The instructions that the step does not end at.
    pub except: Range<u64>,
}

/// What to stop for; any of it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Stops {
    /// The addresses of instructions, in ascending order.
    pub addresses: Vec<u64>,
    /// The watched memory. In a recording nothing is known of accesses.
    pub watches: Vec<Watch>,
    /// The end of a step.
    pub goal: Option<Goal>,
}

impl Stops {
    /// Whether the thread stops before the instruction at `rip`, apart from what it accesses.
    #[inline]
    pub fn is_at(&self, tid: u32, rip: u64, rsp: u64) -> bool {
        let is_goal =
            |goal: &Goal| goal.tid == tid && rsp >= goal.rsp_min && !goal.except.contains(&rip);
        self.has_address(rip) || self.goal.as_ref().is_some_and(is_goal)
    }

    /// Whether `rip` is one of the addresses.
    #[inline]
    pub fn has_address(&self, rip: u64) -> bool {
        !self.addresses.is_empty() && self.addresses.binary_search(&rip).is_ok()
    }
}
