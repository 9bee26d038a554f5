//! Removes what a recording holds of its program's data, so that it can be sent.
//!
//! Of memory and registers, three kinds of words are kept: what an unwinder reads, addresses of
//! code, and addresses of stacks. All others become zero. A word that is read but cannot be an
//! address (registers that a walk carries along hold text) is replaced by another number of that
//! kind, the same one wherever it stands. So no word of text is left, and every unwinder still gives
//! the same chains, verdicts and reasons; that is checked, sample by sample and in the written file.

mod address;
mod apply;
mod check;
mod error;
mod file;
mod kept;
mod names;
pub mod perf_data;
mod scrubber;
mod trace;
mod walkers;
mod watched;

pub use error::ScrubError;
pub use file::{Done, Options, Written, scrub};
pub use kept::Kept;
#[cfg(feature = "machine")]
pub(crate) use names::{file_name, meta as scrub_meta};
pub use scrubber::{Differs, Scrubber};
