//! The emulated machine: executes x86-64 programs and reports each instruction to an observer.
//!
//! [`AddressSpace`] is the memory: areas with permissions, in pages that are created on first use;
//! one space for each process, which can share pages. [`load()`] loads a program as Linux's
//! `execve` does. [`Machine`] decodes it block by block into operations (`lower`, `op`) and runs
//! them; their functions are in `isa`, one file for each group of instructions. [`linux::Kernel`]
//! is a program with a kernel around it; in [`ring0::Ring0`] the machine runs the kernel itself.
//!
//! [`Machine::snapshot`] and [`linux::Kernel::snapshot`] save the state of a run, so that it can
//! be restored; the cost does not depend on how much memory is in use.
#![forbid(unsafe_code)]

pub mod address_space;
mod code;
mod core;
pub mod differences;
pub mod effects;
pub mod flags;
pub(crate) mod float;
mod isa;
mod length;
#[cfg(unix)]
pub mod linux;
pub mod load;
mod lower;
pub mod machine;
mod op;
mod operands;
pub mod processor;
mod random;
pub mod ring0;
pub mod single;
pub mod state;
pub mod stop;
#[cfg(test)]
#[path = "../tests/common/random.rs"]
mod test_random;

pub use self::core::Core;
pub use address_space::{
    Access, AddressSpace, Area, Fault, FaultKind, MapError, Permissions, RestoreError,
};
pub use load::{LoadError, LoadErrorKind, LoadOptions, Loaded, load};
pub use machine::{BlockId, Executed, Exit, Machine, Observer};
pub use processor::{Processor, Vendor};
pub use state::State;
pub use stop::{Call, Exception};
