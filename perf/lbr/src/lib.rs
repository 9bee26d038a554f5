//! Last branch records in call-stack mode: the processor's ring, and what the kernel does to keep
//! one task's calls apart from another's.
//!
//! [`Ring`] is the hardware, filters included ([`Select`]). [`Kernel`] saves and restores it at
//! context switches, in memory that belongs to the event context ([`Storage::PerContext`], up to
//! Linux 6.14) or to the task ([`Storage::PerTask`], from 6.15 on), whose lifetime is counted and
//! ended by RCU ([`Ledger`] is its bookkeeping). `perf report --stitch-lbr` is
//! [`lbr_stitch`](unwind_sim_perf_data::lbr_stitch).
//!
//! There is no time and no scheduler here: the caller says what happens.

#![forbid(unsafe_code)]

mod kernel;
mod layout;
mod ring;
mod select;
mod storage;

pub use kernel::{Cgroup, Dying, Kernel, Ledger, Mutation, Reader, Saving, Step, Tid};
pub use layout::{CONTEXT_HEADER_BYTES, Layout};
pub use ring::{Branch, Depth, Kind, Ring};
pub use select::{Select, SelectError, branch_type};
pub use storage::Storage;
