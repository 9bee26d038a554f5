//! Compares unwinders with the ground truth.
//!
//! [`engine`] runs one unwinder on one stack, and [`run`] many on many. [`check`] checks one row in
//! one true frame, [`diagnose`] finds the cause of a wrong chain, and [`compare`] counts. [`cases`]
//! builds, runs and judges case files; [`check_dir()`] judges an unwinder of your own in your own
//! tests. [`verify`] checks every row at every instruction that a program executes in the emulated
//! machine.
//!
//! Text and JSON are in `unwind-sim-view`, recording is in `unwind-sim-record`.
#![forbid(unsafe_code)]

pub mod baseline;
pub mod blame;
pub mod case;
#[cfg(feature = "machine")]
pub mod cases;
pub mod check;
pub mod check_dir;
pub mod compare;
#[cfg(feature = "machine")]
pub mod confirm;
pub mod diagnose;
pub mod disassembly;
pub mod doctor;
pub mod engine;
#[cfg(feature = "machine")]
pub mod extract;
pub mod ground;
pub mod hex;
pub mod input;
pub mod kernel;
pub mod own;
pub mod precise;
mod root;
pub mod run;
pub mod scrub;
pub mod shell;
pub mod spec;
pub mod stacks;
pub mod states;
pub mod tally;
mod target;
pub mod unjudged;
pub mod unwinders;
#[cfg(feature = "machine")]
pub mod verify;
pub mod whole;

pub use check_dir::check_dir;

/// The name of the schema of every JSON line. Fields are only added to it.
pub const SCHEMA: &str = "unwind-sim.v1";
