//! What `perf` has subcommands for, over `unwind-sim-perf`: files, symbols and stacks come from
//! here.

#![forbid(unsafe_code)]

pub mod bpf;
pub mod fuzz;
pub mod recording;
pub mod run;
mod samples;
pub mod script;
pub mod sources;
mod stacks;
pub mod stitch;
