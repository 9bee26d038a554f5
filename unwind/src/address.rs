//! Code addresses: an instruction address and a return address are different things.
//!
//! A return address may lie behind the end of its function (a call to a noreturn function is
//! often the last instruction), and the row in force at it may be that of the next basic block;
//! the row that describes the caller is the one at the call. An interrupted instruction's own
//! address is exact. Where a format or a kernel looks up a return address unadjusted, its profile
//! says so ([`Lookup`]).

use core::fmt;

/// The address of an instruction, or of the instruction after a call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CodeAddress {
    /// This instruction is about to be executed: the topmost frame, or one interrupted by a
    /// signal.
    Instruction(u64),
    /// A call pushed this address.
    Return(u64),
}

/// At which address a return address is looked up in a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lookup {
    /// At ra - 1, inside the call instruction (DWARF unwinders, the kernel's ORC).
    #[default]
    InsideCall,
    /// At ra itself (the SFrame specification's pseudo-code and the kernel's SFrame reader).
    AtReturn,
}

impl CodeAddress {
    /// The address as it stands in the register or on the stack.
    #[inline]
    pub const fn value(self) -> u64 {
        match self {
            CodeAddress::Instruction(a) | CodeAddress::Return(a) => a,
        }
    }

    /// The address to look up in a table.
    #[inline]
    pub const fn lookup(self, lookup: Lookup) -> u64 {
        match (self, lookup) {
            (CodeAddress::Return(a), Lookup::InsideCall) => a.wrapping_sub(1),
            (CodeAddress::Instruction(a) | CodeAddress::Return(a), _) => a,
        }
    }

    /// The address to name the function by: always inside the call.
    #[inline]
    pub const fn symbol_address(self) -> u64 {
        self.lookup(Lookup::InsideCall)
    }

    /// Is it exact, not a return address?
    pub const fn is_instruction(self) -> bool {
        matches!(self, CodeAddress::Instruction(_))
    }
}

impl fmt::Debug for CodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CodeAddress::Instruction(a) => write!(f, "Instruction({a:#x})"),
            CodeAddress::Return(a) => write!(f, "Return({a:#x})"),
        }
    }
}
