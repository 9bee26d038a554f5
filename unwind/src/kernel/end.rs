//! Why a kernel's unwinder is done, in the kernel's own words where it prints any.

use super::stacks::NoStack;
use crate::memory::MemoryError;
use crate::reason::{KernelReason, Reason};
use crate::regs::Reg;

/// Why a walk is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The start's registers are those of user space: nothing was tried.
    StartedInUser,
    /// The next frame is user space's.
    UserRegs,
    /// A root, by its entry.
    EndOfStack,
    /// There is nothing more on the last stack, for the guess and, since it follows links, for
    /// frame pointers.
    OutOfStacks,
    /// The task runs on another processor.
    OtherCpu,
    /// The kernel has no ORC tables that can be used.
    NoTables,
    /// sp is on no stack at the start, nor is the page behind it.
    StartNotOnStack {
        /// It.
        sp: u64,
    },
    /// The entry says that nothing is known.
    Undefined {
        /// Of this address.
        ip: u64,
    },
    /// There is no entry, and no fallback in this version.
    NoEntry {
        /// Of this address.
        ip: u64,
    },
    /// The entry needs a register that is not known.
    MissingReg {
        /// It.
        reg: Reg,
        /// Where.
        ip: u64,
    },
    /// The entry makes no sense.
    BadEntry {
        /// What of it.
        what: &'static str,
        /// Where.
        ip: u64,
    },
    /// A word that is on no stack that may be visited.
    CannotRead {
        /// Its address.
        address: u64,
        /// What is there instead.
        why: NoStack,
        /// Where.
        ip: u64,
    },
    /// Saved registers, the same.
    CannotReadRegs {
        /// Their address.
        address: u64,
        /// Only the hardware's part was wanted.
        partial: bool,
        /// What is there instead.
        why: NoStack,
        /// Where.
        ip: u64,
    },
    /// sp did not advance.
    WrongDirection {
        /// Where.
        ip: u64,
    },
    /// The next frame pointer is bad.
    BadFramePointer {
        /// The frame, or the registers, that it was in.
        frame: u64,
        /// In registers.
        in_regs: bool,
        /// It.
        value: u64,
    },
    /// The recording lacks what the kernel had read.
    NotRecorded(MemoryError),
}

impl Ended {
    /// The reason, for a chain.
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
