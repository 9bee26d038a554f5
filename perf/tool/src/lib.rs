//! The `perf` subcommands: connects the perf crates with files, symbols and stacks.

#![forbid(unsafe_code)]

pub mod bpf;
pub mod fuzz;
mod losses;
pub mod recording;
pub mod run;
mod samples;
pub mod script;
pub mod sources;
mod stacks;
pub mod stitch;
