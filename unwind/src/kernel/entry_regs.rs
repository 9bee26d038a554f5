//! The `struct pt_regs` that an unwinder holds, somewhere on a kernel stack.

use super::State;
use crate::memory::{Memory, MemoryError};
use crate::pt_regs::offset_of;
use crate::regs::{Reg, Regs};

/// A pointer to a `struct pt_regs`, as the unwinder holds one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum RegsPtr {
    /// NULL.
    #[default]
    None,
    /// To the registers that the walk was started with, wherever they are.
    Start,
    /// To memory.
    At(u64),
}

impl RegsPtr {
    /// Is it not NULL?
    pub const fn is_some(self) -> bool {
        !matches!(self, RegsPtr::None)
    }

    /// The address, if it is known to be one.
    pub const fn address(self) -> Option<u64> {
        match self {
            RegsPtr::At(address) => Some(address),
            RegsPtr::None | RegsPtr::Start => None,
        }
    }

    /// The register there. A register that the start lacks counts as 0, as in the zeroed registers
    /// of a tracepoint.
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

/// `user_mode`: do these code segments belong to user space?
pub const fn is_user_cs(cs: u64) -> bool {
    cs & 3 != 0
}

/// What every unwinder's state says of the registers at hand, for `show_trace_log_lvl` and
/// `arch_stack_walk_reliable` (`unwind_get_entry_regs`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryRegs {
    /// Where they are.
    pub at: RegsPtr,
    /// Only the hardware's part is valid.
    pub partial: bool,
}

impl EntryRegs {
    /// Those of a state that is not done; `None` if it has none.
    pub fn of(state: &State) -> Option<EntryRegs> {
        let (at, partial) = match state {
            State::Orc(s) => (s.regs, !s.full_regs),
            State::Fp(s) => (s.regs, false),
            State::Guess(_) => return None,
        };
        (!state.is_done() && at.is_some()).then_some(EntryRegs { at, partial })
    }
}
