//! Why a program was stopped.

use super::insn::Insn;
use super::names::map;
use super::vm::address::Region;
use thiserror::Error;

/// A program's fault: the kernel's verifier would have refused the program.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{program}: instruction {insn}{} ({:02x?}): {kind}", self.place(), .code.encode())]
pub struct Fault {
    /// The program.
    pub program: String,
    /// The function.
    pub function: String,
    /// Number of the instruction in the program.
    pub insn: usize,
    /// The instruction.
    pub code: Insn,
    /// What is wrong.
    pub kind: FaultKind,
}

/// The kinds of [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FaultKind {
    /// A read of a register that was never written.
    #[error("r{0} was never written")]
    UninitialisedRegister(u8),
    /// A read of stack bytes that were never written.
    #[error("the stack of call {frame} was never written at r10{offset:+}")]
    UninitialisedStack {
        /// The call that the stack belongs to.
        frame: u32,
        /// From the frame pointer, bytes.
        offset: i64,
    },
    /// An access through a null pointer, such as a lookup's result that was not checked.
    #[error("access to {size} bytes at {address:#x} through a null pointer")]
    Null {
        /// The address.
        address: u64,
        /// Size of the access, bytes.
        size: u64,
    },
    /// An access to an address that is not a pointer of the program.
    #[error("access to {size} bytes at {address:#x}, which is not a pointer")]
    NotAPointer {
        /// The address.
        address: u64,
        /// Size of the access, bytes.
        size: u64,
    },
    /// An access outside what the pointer points to.
    #[error("access to {size} bytes at offset {offset} of {region}, which has {length} bytes")]
    OutOfBounds {
        /// The region that it points to.
        region: Region,
        /// From its start, bytes.
        offset: i64,
        /// Size of the access, bytes.
        size: u64,
        /// Size of the region, bytes.
        length: u64,
    },
    /// A write to what programs may only read.
    #[error("write to {0}, which is read-only")]
    ReadOnly(Region),
    /// An access to the stack that is not aligned to its size.
    #[error("misaligned access to {size} bytes at r10{offset:+}")]
    MisalignedStack {
        /// From the frame pointer, bytes.
        offset: i64,
        /// Size of the access, bytes.
        size: u64,
    },
    /// An access to the context that the verifier does not allow: registers are read by 8 bytes,
    /// the period and the address by any size, all aligned.
    #[error("invalid access to {size} bytes at offset {offset} of the context")]
    Context {
        /// Offset in the context, bytes.
        offset: i64,
        /// Size of the access, bytes.
        size: u64,
    },
    /// A field of the context that is unknown for this sample.
    #[error("offset {offset} of the context is unknown for this sample")]
    ContextUnknown {
        /// Offset in the context, bytes.
        offset: i64,
    },
    /// More than 8 nested calls.
    #[error("more than 8 nested calls")]
    CallDepth,
    /// More instructions than the budget.
    #[error("still running after {0} instructions")]
    Budget(u64),
    /// An unknown operation code, which the check at loading should have refused.
    #[error("opcode {0:#04x} is not modelled")]
    Opcode(u8),
    /// An argument that a helper does not accept.
    #[error("invalid argument {argument} of {helper}")]
    Argument {
        /// The helper.
        helper: &'static str,
        /// Number of the argument, from 1.
        argument: u8,
    },
    /// A map of a type that a helper does not accept.
    #[error("{helper} cannot take a map of type {kind} ({})", map(*.kind).unwrap_or("unknown"))]
    MapKind {
        /// The helper.
        helper: &'static str,
        /// The map's type.
        kind: u32,
    },
    /// The program ended with a record of a ring buffer that it neither submitted nor discarded.
    #[error("ring buffer record {0} is neither submitted nor discarded")]
    Unreleased(u32),
    /// A helper for programs that handle perf events, in another type of program.
    #[error("{0} is only for programs that handle perf events")]
    NotPerfEvent(&'static str),
}

impl Fault {
    /// The function, where it is not the program's own.
    fn place(&self) -> String {
        if self.function == self.program {
            String::new()
        } else {
            format!(" in {}", self.function)
        }
    }
}
