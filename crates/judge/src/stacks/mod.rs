//! Runs one unwinder on many stacks, for addresses only. A perf.data is read directly from its
//! mapped file, on one or several threads; other recordings are read as traces.
//!
//! Of a perf.data only the user part of a stack is walked; the kernel's part is as perf recorded it.
//! Verdicts are in [`crate::run`].

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
pub use task::{Consumer, Counted, Taken, Task};
pub use unwind::How;
