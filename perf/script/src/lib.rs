//! The output of `perf script`: one block of text for each sample, byte for byte as perf prints it.
//!
//! Contains the output of `--header` ([`header`]), the choice of fields ([`Fields`], [`Asked`]),
//! event names, tasks with their names and mappings ([`Tasks`]), and the printer ([`Script`]),
//! which writes text ([`Text`]) or any other [`Output`]. Symbols come from an implementation of
//! [`Symbols`](unwind_sim_recordings::symbols::Symbols), frames of stack copies from one of
//! [`Unwind`].
//!
//! The format is that of `tools/perf/builtin-script.c` and `tools/perf/util/evsel_fprintf.c`
//! (perf 7.2).

#![forbid(unsafe_code)]

mod asked;
mod bpf_output;
mod call_stacks;
mod digits;
mod fields;
mod filter;
mod frames;
mod groups;
pub mod header;
mod joined;
mod losses;
mod output;
mod printer;
mod tasks;
mod text;
mod times;
mod trace;

pub use asked::{Asked, EventType, FieldList, ListError};
pub use fields::{FieldError, Fields};
pub use filter::Filter;
pub use losses::Losses;
pub use output::{Address, Head, Output};
pub use printer::{OptionError, Options, Script, Unwind};
pub use tasks::{Map, Tasks};
pub use text::Text;
pub use times::{TimeError, TimeSpan};
pub use unwind_sim_perf_data::event_name;
