//! The emulated machine: for now its address space and program loader.
//!
//! [`AddressSpace`] is the memory of one process: areas with permissions, in pages that are made
//! when they are first written. [`load()`] puts a program there as Linux's `execve` would.
//!
//! Not here yet: executing instructions, system calls, signals.
#![forbid(unsafe_code)]

pub mod address_space;
pub mod load;

pub use address_space::{Access, AddressSpace, Area, Fault, FaultKind, MapError, Permissions};
pub use load::{LoadError, LoadErrorKind, LoadOptions, Loaded, load};
