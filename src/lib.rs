//! The command line of unwind-sim, as functions: for its program, and for tests that run many command
//! lines in one process. It is not an interface for other programs, which use the packages below it.
//!
//! Each subcommand is a file in `command/`. The work is done by the packages below (`ARCHITECTURE.md`);
//! `perf/` joins those of the perf house, which know nothing of recordings, with the others.
#![forbid(unsafe_code)]

mod command;
#[cfg(feature = "perf")]
pub mod perf;

pub use command::{definition, run};
