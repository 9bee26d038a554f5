//! The `struct pt_regs` that an unwinder refers to, somewhere on a kernel stack.

use super::State;
use crate::memory::{Memory, MemoryError};
use crate::pt_regs::offset_of;
use crate::regs::{Reg, Regs};

/// An unwinder's pointer to a `struct pt_regs`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum RegsPtr {
    /// NULL.
    #[default]
    None,
    /// The registers with which the walk started, wherever they are.
    Start,
    /// Registers in memory.
    At(u64),
}

impl RegsPtr {
    /// Whether it is not NULL.
    pub const fn is_some(self) -> bool {
        !matches!(self, RegsPtr::None)
    }

    /// The address, if known.
    pub const fn address(self) -> Option<u64> {
        match self {
            RegsPtr::At(address) => Some(address),
            RegsPtr::None | RegsPtr::Start => None,
        }
    }

    /// The value of a register there. A register missing from the start reads as 0, like the zeroed
    /// registers of a tracepoint.
    pub(super) fn read<M: Memory + ?Sized>(
        self,
        start: &Regs,
        memory: &M,
        reg: Reg,
    ) -> Result<u64, MemoryError> {
        match self {
            RegsPtr::None => Ok(0),
            RegsPtr::Start => Ok(start.get(reg).unwrap_or(0)),
            RegsPtr::At(address) => memory.read_u64(address.wrapping_add(offset_of(reg))),
        }
    }
}

/// Whether this code segment belongs to user space (`user_mode`).
pub const fn is_user_cs(cs: u64) -> bool {
    cs & 3 != 0
}

/// The registers of the current frame as known to any unwinder's state, for `show_trace_log_lvl`
/// and `arch_stack_walk_reliable` (`unwind_get_entry_regs`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryRegs {
    /// The registers' location.
    pub at: RegsPtr,
    /// Whether only the iret frame is valid.
    pub partial: bool,
}

impl EntryRegs {
    /// The registers of `state`; `None` if it has none or is done.
    pub fn of(state: &State) -> Option<EntryRegs> {
        let (at, partial) = match state {
            State::Orc(s) => (s.regs, !s.full_regs),
            State::Fp(s) => (s.regs, false),
            State::Guess(_) => return None,
        };
        (!state.is_done() && at.is_some()).then_some(EntryRegs { at, partial })
    }
}
