//! Many stacks through one unwinder, for their addresses: a perf.data straight from its mapped file
//! on one thread or several, and other recordings as traces.
//!
//! Only the user part of a stack is walked. Not here: verdicts ([`crate::run`]).

mod batch;
mod leader;
mod replay;
mod single;
mod source;
mod task;
mod traced;
mod unwind;

pub use replay::{Counts, ReplayOptions, replay, replay_alone};
pub use single::{Single, Walked};
pub use source::{PerStack, Source, addresses, alone, gather, options, plain_options};
pub use task::{Consumer, Taken, Task};
pub use unwind::How;
