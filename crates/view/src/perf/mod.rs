//! What the `perf` subcommands write of a recording: the text of `perf script` or a profile, with the
//! frames of stack copies that an unwinder finds, and deferred callchains joined with their samples.

mod losses;
pub mod recording;
mod samples;
pub mod script;
mod stacks;
pub mod stitch;
