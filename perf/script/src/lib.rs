//! The output of `perf script`: one block of text for each sample, byte for byte as perf prints it.
//!
//! Contains the output of `--header` ([`header`]), the choice of fields ([`Fields`],
//! [`RequestedFields`]), event names, tasks with their names and mappings ([`Tasks`]), and the
//! printer ([`Script`]), which writes text ([`Text`]) or any other [`Output`]. Symbols come from an
//! implementation of [`Symbols`](symbols::Symbols), such as [`Files`](symbols::Files), frames of
//! stack copies from one of [`Unwind`].
//!
//! The format is that of `tools/perf/builtin-script.c` and `tools/perf/util/evsel_fprintf.c`
//! (perf 7.2).

#![forbid(unsafe_code)]

#[cfg(feature = "text")]
mod asked;
#[cfg(feature = "text")]
mod bpf_output;
#[cfg(feature = "text")]
mod call_stacks;
#[cfg(feature = "text")]
mod digits;
#[cfg(feature = "text")]
mod fields;
#[cfg(feature = "text")]
mod filter;
#[cfg(feature = "text")]
mod frames;
#[cfg(feature = "text")]
mod groups;
#[cfg(feature = "text")]
pub mod header;
#[cfg(feature = "text")]
mod joined;
#[cfg(feature = "text")]
mod losses;
#[cfg(feature = "text")]
mod output;
#[cfg(feature = "text")]
mod printer;
#[cfg(test)]
#[path = "../tests/common/random.rs"]
mod random;
pub mod symbols;
#[cfg(feature = "text")]
mod tasks;
#[cfg(feature = "text")]
mod text;
#[cfg(feature = "text")]
mod times;
#[cfg(feature = "text")]
mod trace;

#[cfg(feature = "text")]
pub use asked::{EventType, FieldList, ListError, RequestedFields};
#[cfg(feature = "text")]
pub use fields::{FieldError, Fields};
#[cfg(feature = "text")]
pub use filter::Filter;
#[cfg(feature = "text")]
pub use losses::{Loss, Losses};
#[cfg(feature = "text")]
pub use output::{Address, Head, Output};
#[cfg(feature = "text")]
pub use printer::{OptionError, Options, Script, Unwind};
#[cfg(feature = "text")]
pub use tasks::{Map, Tasks};
#[cfg(feature = "text")]
pub use text::Text;
#[cfg(feature = "text")]
pub use times::{TimeError, TimeSpan};
pub use unwind_sim_perf_data::event_name;
