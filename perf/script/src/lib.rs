//! The text of `perf script`: one block for each sample, byte for byte.
//!
//! Here: what `--header` says ([`header`]), which fields are printed and how wide ([`Fields`], [`Asked`]), names of events, tasks with their
//! names and mappings ([`Tasks`]), and the printer ([`Script`]), which makes text ([`Text`]) or
//! whatever else implements [`Output`]. Where symbols come from is the
//! business of whoever implements [`Symbols`](unwind_sim_recordings::symbols::Symbols); unwinding of stack copies that of [`Unwind`].
//!
//! The form is that of `tools/perf/builtin-script.c` and `tools/perf/util/evsel_fprintf.c`
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
mod names;
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
pub use names::name as event_name;
pub use output::{Address, Head, Output};
pub use printer::{OptionError, Options, Script, Unwind};
pub use tasks::{Map, Tasks};
pub use text::Text;
pub use times::{TimeError, TimeSpan};
