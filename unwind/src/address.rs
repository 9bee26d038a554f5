//! Code addresses: an instruction address and a return address are different things.
//!
//! A return address may lie past the end of its function, because a call to a noreturn function is
//! often the last instruction. The row at a return address may belong to the next basic block; the
//! row that describes the caller is the one at the call. The address of an interrupted instruction
//! is exact. A profile states whether its format or kernel looks up return addresses unadjusted
//! ([`Lookup`]).

use core::fmt;

/// The address of an instruction, or of the instruction after a call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CodeAddress {
    /// The instruction to be executed next: in the topmost frame, or in one interrupted by a
    /// signal.
    Instruction(u64),
    /// A return address, pushed by a call.
    Return(u64),
}

/// The address at which a return address is looked up in a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lookup {
    /// At ra - 1, inside the call instruction (DWARF unwinders, the kernel's ORC).
    #[default]
    InsideCall,
    /// At ra itself (the SFrame specification's pseudo-code and the kernel's SFrame reader).
    AtReturn,
}

impl CodeAddress {
    /// The address as stored in the register or on the stack.
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

    /// The address for finding the function's name: always inside the call.
    #[inline]
    pub const fn symbol_address(self) -> u64 {
        self.lookup(Lookup::InsideCall)
    }

    /// Whether this is an exact instruction address rather than a return address.
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
