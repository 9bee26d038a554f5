//! Compares unwinders with the ground truth.
//!
//! [`engine`] runs one unwinder on one stack, and [`run`] many on many. [`check`] checks one row in
//! one true frame, [`diagnose`] finds the cause of a wrong chain, and [`compare`] counts. [`cases`]
//! builds, runs and judges case files; [`check_dir()`] judges an unwinder of your own in your own
//! tests. [`verify`] checks every row at every instruction that a program executes in the emulated
//! machine.
//!
//! Text and JSON are in `unwind-sim-view`, recording is in `unwind-sim-record`.
//!
//! Unwinders on all samples of a recording:
//!
//! ```
//! use std::path::Path;
//! use unwind_sim_judge::compare::GroupBy;
//! use unwind_sim_judge::engine::Setting;
//! use unwind_sim_judge::input::Input;
//! use unwind_sim_judge::run::{Against, Run};
//! use unwind_sim_judge::spec;
//! use unwind_sim_recordings::convert::OpenOptions;
//! use unwind_sim_recordings::view::Filter;
//!
//! let input = Input::open(Path::new("corpus/traces/seed-004.bin"), &OpenOptions::default())?;
//! let run = Run {
//!     engines: spec::engines(&["dwarf".to_owned(), "fp".to_owned()])?,
//!     variants: Vec::new(),
//!     setting: Setting::default(),
//!     against: Against::Truth,
//!     group_by: GroupBy::Cause,
//! };
//!
//! let comparison = run.compare(&input, &Filter::default())?;
//! assert_eq!(comparison.samples, 3);
//! // Whatever dwarf has wrong would be here; its code has no frame pointers, so fp has.
//! assert!(comparison.column_groups(0).is_empty());
//! for (_, group) in comparison.column_groups(1) {
//!     println!("{} stacks, the first is sample {}", group.count, group.sample);
//! }
//! # assert_eq!(comparison.column_groups(1).len(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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
#[cfg(test)]
#[path = "../tests/common/random.rs"]
mod random;
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
