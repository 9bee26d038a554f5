//! Stack unwinders for x86-64: registers, memory, rules, table readers, the walk, and the ground
//! truth.
//!
#![doc = include_str!("../README.md")]
//!
//! # How a walk works
//!
//! A [`finder::Finder`] looks up the rule for an address in its table. [`walk::walk`] applies the
//! rule ([`rule::Rule`]) and continues with the caller. [`unwinder::Unwinder`] is the interface of
//! every unwinder, including those without a table (guess, LBR) and your own. Nothing here does
//! I/O, reads a clock, or starts a thread.
//!
//! # Where to begin
//!
//! - [`elf::read`] and [`step::find_row`]: the rows of an ELF file;
//! - [`Unwinder::walk`]: one stack, as above; [`walk::walk`] gives each frame to a [`chain::Sink`];
//! - [`memory::MappedMemory`]: a thread of a core;
//! - [`Cache`]: what to keep from walk to walk;
//! - [`finder::Finder`]: an unwinder of your own;
//! - [`verdict::judge`]: whether a chain is the true one.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(feature = "unpack")]
extern crate std;

pub mod address;
pub mod apply;
pub mod cache;
pub mod chain;
pub mod convention;
pub mod derived;
pub mod dwarf;
#[cfg(feature = "elf")]
pub mod elf;
pub mod event;
pub mod finder;
pub mod fp;
pub mod frame;
pub mod guess;
pub mod image;
pub mod insn;
#[cfg(feature = "kernel")]
pub mod kernel;
pub mod lbr;
pub mod memory;
pub mod orc;
pub mod printable;
pub mod pt_regs;
pub mod reason;
pub mod regs;
pub mod row;
pub mod row_bytes;
pub mod rule;
pub mod sframe;
pub mod start;
pub mod step;
#[cfg(feature = "truth")]
pub mod truth;
pub mod unwinder;
#[cfg(feature = "truth")]
pub mod verdict;
pub mod walk;

pub use address::CodeAddress;
pub use cache::Cache;
pub use chain::Chain;
pub use dwarf::Dwarf;
pub use fp::FramePointer;
pub use image::{AddressSpace, Image, Mapping};
pub use memory::{Memory, MemoryCopy};
pub use reason::Reason;
pub use regs::{Reg, Regs};
pub use start::Start;
pub use unwinder::{Stack, Unwinder};
