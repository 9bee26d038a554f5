//! The emulated machine: executes x86-64 programs and tells an observer of every instruction.
//!
//! [`AddressSpace`] is the memory of one process: areas with permissions, in pages that are made
//! when they are first used. [`load()`] puts a program there as Linux's `execve` would.
//! [`Machine`] decodes it block by block into operations (`lower`, `op`) and runs them; what
//! they do is in `isa`, one file for each group of instructions. [`linux::Process`] is a program
//! in it with a kernel around; in [`ring0::Ring0`] the kernel itself runs in it.
//!
//! [`Machine::snapshot`] and [`linux::Process::snapshot`] remember where a run is, at a cost that
//! does not depend on how much memory is in use, so that one can go back to it.
#![forbid(unsafe_code)]

pub mod address_space;
mod code;
pub mod differences;
pub mod effects;
pub mod flags;
pub(crate) mod float;
mod isa;
#[cfg(unix)]
pub mod linux;
pub mod load;
mod lower;
pub mod machine;
mod op;
mod operands;
pub mod processor;
pub mod ring0;
pub mod single;
pub mod state;
pub mod stop;

pub use address_space::{
    Access, AddressSpace, Area, Fault, FaultKind, MapError, Permissions, RestoreError,
};
pub use load::{LoadError, LoadErrorKind, LoadOptions, Loaded, load};
pub use machine::{BlockId, Executed, Exit, Machine, Observer};
pub use processor::{Processor, Vendor};
pub use state::State;
pub use stop::{Call, Exception};
