//! Why a program was stopped.

use super::insn::Insn;
use super::vm::address::Region;
use std::fmt;

/// A program's fault: the kernel's verifier would have refused the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The program.
    pub program: String,
    /// The function of it.
    pub function: String,
    /// Number of the instruction in the program.
    pub insn: usize,
    /// The instruction.
    pub code: Insn,
    /// What is wrong.
    pub kind: FaultKind,
}

/// The kinds of [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// A register is used that nothing was written to.
    UninitialisedRegister(u8),
    /// Bytes of the stack are read that nothing was written to.
    UninitialisedStack {
        /// Which call's stack.
        frame: u32,
        /// From the frame pointer, bytes.
        offset: i64,
    },
    /// An access through a null pointer, such as a lookup's result that was not checked.
    Null {
        /// The address.
        address: u64,
        /// Bytes.
        size: u64,
    },
    /// An access to an address that is no pointer of the program.
    NotAPointer {
        /// The address.
        address: u64,
        /// Bytes.
        size: u64,
    },
    /// An access outside what the pointer points to.
    OutOfBounds {
        /// What it points to.
        region: Region,
        /// From its start, bytes.
        offset: i64,
        /// Bytes.
        size: u64,
        /// Bytes that the region has.
        length: u64,
    },
    /// A write to what programs may only read.
    ReadOnly(Region),
    /// An access to the stack that is not aligned to its size.
    MisalignedStack {
        /// From the frame pointer, bytes.
        offset: i64,
        /// Bytes.
        size: u64,
    },
    /// An access to the context that the verifier does not allow: registers are read by 8 bytes,
    /// the period and the address by any size, all aligned.
    Context {
        /// Offset in the context, bytes.
        offset: i64,
        /// Bytes.
        size: u64,
    },
    /// A field of the context that is not known of this sample.
    ContextUnknown {
        /// Offset in the context, bytes.
        offset: i64,
    },
    /// More calls inside each other than 8.
    CallDepth,
    /// More instructions than the budget.
    Budget(u64),
    /// An operation code that got past the check: our bug.
    Opcode(u8),
    /// An argument that a helper cannot take.
    Argument {
        /// The helper.
        helper: &'static str,
        /// Number of the argument, from 1.
        argument: u8,
    },
    /// A map that a helper cannot take.
    MapKind {
        /// The helper.
        helper: &'static str,
        /// The map's type.
        kind: u32,
    },
    /// The program ended with a record of a ring buffer that it neither submitted nor discarded.
    Unreleased(u32),
    /// A helper for programs that handle perf events, in another one.
    NotPerfEvent(&'static str),
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::UninitialisedRegister(r) => write!(f, "r{r} was never written"),
            Self::UninitialisedStack { frame, offset } => {
                write!(
                    f,
                    "the stack of call {frame} was never written at r10{offset:+}"
                )
            }
            Self::Null { address, size } => {
                write!(f, "{size} bytes at {address:#x}: a null pointer")
            }
            Self::NotAPointer { address, size } => {
                write!(f, "{size} bytes at {address:#x}, which is no pointer")
            }
            Self::OutOfBounds {
                region,
                offset,
                size,
                length,
            } => write!(
                f,
                "{size} bytes at {offset} of {region}, which has {length} bytes"
            ),
            Self::ReadOnly(region) => write!(f, "a write to {region}, which is read-only"),
            Self::MisalignedStack { offset, size } => {
                write!(f, "{size} bytes at r10{offset:+}: misaligned")
            }
            Self::Context { offset, size } => {
                write!(
                    f,
                    "{size} bytes at {offset} of the context, which programs may not access"
                )
            }
            Self::ContextUnknown { offset } => {
                write!(
                    f,
                    "the sample does not tell what is at {offset} of the context"
                )
            }
            Self::CallDepth => write!(f, "more than 8 calls inside each other"),
            Self::Budget(limit) => write!(f, "still running after {limit} instructions"),
            Self::Opcode(code) => write!(f, "opcode {code:#04x} is not modelled"),
            Self::Argument { helper, argument } => {
                write!(f, "argument {argument} of {helper} is not what it takes")
            }
            Self::MapKind { helper, kind } => {
                let name = super::names::map(kind).unwrap_or("unknown");
                write!(f, "{helper} cannot take a map of type {kind} ({name})")
            }
            Self::Unreleased(number) => {
                write!(f, "record {number} is neither submitted nor discarded")
            }
            Self::NotPerfEvent(helper) => {
                write!(f, "{helper} is for programs that handle perf events")
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: instruction {}", self.program, self.insn)?;
        if self.function != self.program {
            write!(f, " in {}", self.function)?;
        }
        write!(f, " ({:02x?}): {}", self.code.encode(), self.kind)
    }
}

impl std::error::Error for Fault {}
