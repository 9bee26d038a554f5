//! Why a kernel unwinder stopped, with the kernel's own message if it prints one.

use super::stacks::NoStack;
use crate::memory::MemoryError;
use crate::reason::{KernelReason, Reason};
use crate::regs::Reg;

/// Why a walk ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The start's registers are those of user space, so there is nothing to walk.
    StartedInUser,
    /// The next frame is in user space.
    UserRegs,
    /// The entry marks a root.
    EndOfStack,
    /// The end of the last stack. Only for the guess and, because it follows links, for frame
    /// pointers.
    OutOfStacks,
    /// The task runs on another processor.
    OtherCpu,
    /// The kernel has no usable ORC tables.
    NoTables,
    /// At the start, neither sp nor the page after it is on a stack.
    StartNotOnStack {
        /// The stack pointer.
        sp: u64,
    },
    /// The entry says that nothing is known.
    Undefined {
        /// The address that the entry covers.
        ip: u64,
    },
    /// There is no entry, and this kernel version has no fallback.
    NoEntry {
        /// The address without an entry.
        ip: u64,
    },
    /// The entry needs an unknown register.
    MissingReg {
        /// The register.
        reg: Reg,
        /// The address that the entry covers.
        ip: u64,
    },
    /// The entry is invalid.
    BadEntry {
        /// The invalid part.
        what: &'static str,
        /// The address that the entry covers.
        ip: u64,
    },
    /// A word is not on a stack that may be visited.
    CannotRead {
        /// The word's address.
        address: u64,
        /// Why there is no stack.
        why: NoStack,
        /// The address that the entry covers.
        ip: u64,
    },
    /// Saved registers are not on a stack that may be visited.
    CannotReadRegs {
        /// The registers' address.
        address: u64,
        /// Whether only the iret frame was needed.
        partial: bool,
        /// Why there is no stack.
        why: NoStack,
        /// The address that the entry covers.
        ip: u64,
    },
    /// sp did not advance.
    WrongDirection {
        /// The address that the entry covers.
        ip: u64,
    },
    /// The next frame pointer is bad.
    BadFramePointer {
        /// The address of the frame or of the saved registers that contain the frame pointer.
        frame: u64,
        /// Whether it is in saved registers.
        in_regs: bool,
        /// The frame pointer.
        value: u64,
    },
    /// The recording lacks something that the kernel read.
    NotRecorded(MemoryError),
}

impl Ended {
    /// The end reason for a chain.
    pub fn reason(&self) -> Reason {
        Reason::Kernel(match *self {
            Ended::StartedInUser => return Reason::NotAtRoot,
            Ended::UserRegs | Ended::EndOfStack => return Reason::RootReached,
            Ended::OutOfStacks => return Reason::NotAtRoot,
            Ended::NotRecorded(error) => return Reason::from(error),
            Ended::Undefined { ip } => KernelReason::Undefined { ip },
            Ended::NoEntry { ip } => return Reason::NoRow { pc: ip },
            Ended::NoTables => return Reason::NoTable { pc: 0 },
            Ended::OtherCpu => KernelReason::OtherCpu,
            Ended::StartNotOnStack { sp } => KernelReason::NotOnStack { address: sp },
            Ended::CannotRead {
                why: NoStack::Recursion(kind),
                ..
            }
            | Ended::CannotReadRegs {
                why: NoStack::Recursion(kind),
                ..
            } => KernelReason::Recursion { stack: kind as u8 },
            Ended::CannotRead { address, .. } => KernelReason::NotOnStack { address },
            Ended::CannotReadRegs { partial, ip, .. } => {
                KernelReason::CannotAccessRegs { partial, ip }
            }
            Ended::MissingReg { reg, ip } => KernelReason::MissingReg { reg, ip },
            Ended::BadEntry { what, ip } => KernelReason::BadEntry { what, ip },
            Ended::WrongDirection { ip } => KernelReason::WrongDirection { ip },
            Ended::BadFramePointer {
                frame,
                in_regs,
                value,
            } => KernelReason::BadFramePointer {
                frame,
                in_regs,
                value,
            },
        })
    }
}
