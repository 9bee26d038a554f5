//! Shared by the benches: programs and snapshots to walk, the peers, and fair timing.
//!
//! Nothing here uses our own unwinder; that is `benches/ours/mod.rs`.
#![allow(dead_code)] // each bench uses its own part

pub(crate) mod framehop_peer;
pub(crate) mod gimli_peer;
pub(crate) mod image;
pub(crate) mod perfdata_peer;
pub(crate) mod process;
pub(crate) mod programs;
pub(crate) mod recording;
pub(crate) mod report;
pub(crate) mod snapshot;
pub(crate) mod synthetic;
pub(crate) mod timing;
