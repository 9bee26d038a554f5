//! Recordings: `trace.bin`, importers, image and symbol files, kernel images.
//!
//! - [`trace`] reads and writes the trace format.
//! - [`import`] reads perf.data files, cores, captures and dumps as a stream of items; [`convert`]
//!   turns them into traces.
//! - [`files`] finds image files, [`names`] the names of code in them, [`kernel`] reads kernel images.
//! - [`jitdump`], [`gdb_jit`] and [`registered`] read what programs say about their generated code, [`runtime`] tells
//!   which runtime and which memory it is.
//! - [`crash`] says which thread of a core died, and by which signal.
//! - [`similar`] finds the name that was meant.
//! - [`view`] is one sample together with its process's mappings.

pub mod branches;
pub mod case_limits;
pub mod contents;
pub mod convert;
pub mod counted;
pub mod crash;
pub mod file_kind;
pub mod files;
pub mod gaps;
pub mod gdb_jit;
pub mod import;
pub mod input_file;
pub mod jitdump;
pub mod kernel;
pub mod leftovers;
pub mod made;
pub mod mapped;
pub mod model;
pub mod names;
pub mod open;
pub mod output_file;
pub mod parts;
mod perf_directory;
pub mod printable;
pub mod progress;
#[cfg(test)]
#[path = "../tests/common/random.rs"]
mod random;
pub mod recording;
pub mod registered;
pub mod runtime;
mod shrunk;
pub mod similar;
pub mod trace;
pub mod view;
pub mod world;
