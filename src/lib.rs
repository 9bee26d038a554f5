//! unwind-sim: record stacks, replay them through every unwinder, judge and explain the chains.
//!
//! The rooms below this one are the unwinders (`unwind-sim-unwind`), recordings
//! (`unwind-sim-corpus`), perf.data (`unwind-sim-perf`) and ptrace (`unwind-sim-host`). Here is
//! what joins them: engines and verdicts, causes, comparison, reports. The command line
//! (`main.rs`, `command/`) is thin.
#![forbid(unsafe_code)]

pub mod baseline;
pub mod branches;
pub mod cases;
pub mod check;
pub mod check_dir;
pub mod compare;
pub mod confirm;
pub mod demo;
pub mod diagnose;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod differential;
pub mod emulate;
pub mod engine;
pub mod explain;
pub mod extract;
pub mod file_kind;
pub mod flat;
pub mod import;
pub mod input;
pub mod inspect;
pub mod json;
pub mod kernel;
mod listing;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod lockstep;
pub mod names;
pub mod own;
pub mod pages;
pub mod perf_tool;
pub mod processor;
pub mod profile;
pub mod progress;
pub mod random;
pub mod record;
mod root;
pub mod run;
pub mod shell;
pub mod spec;
pub mod tally;
mod target;
pub mod text;
pub mod unjudged;
pub mod unwinders;
pub mod verify;

pub use check_dir::check_dir;

/// The schema that every JSON line names. Within v1 fields are only added.
pub const SCHEMA: &str = "unwind-sim.v1";
