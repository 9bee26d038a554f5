//! The trace format: `trace.bin`.
//!
//! A trace holds events and samples in time order and the images they refer to, in blocks with
//! checksums, compression and an index. `docs/trace-format.md` specifies it byte by byte.
//! [`TraceWriter`] writes a trace as a stream; [`Trace`] reads one through a memory map, from the
//! start or at any sample.
//!
//! Recording (`host`, the emulator, the importers) and the meaning of samples are elsewhere.

mod block;
mod chunk;
mod details;
mod error;
mod event;
mod file;
mod image;
mod index;
mod items;
mod layout;
mod meta;
mod output;
mod reader;
mod sample;
mod stream;
mod varint;
mod window;
mod writer;

#[cfg(test)]
mod tests;

pub use chunk::{Chunk, ChunkReader};
pub use error::{TraceError, TraceErrorKind, WriteError};
pub use file::TraceFile;
pub use items::Items;
pub use layout::*;
pub use meta::{Engine, Meta, TimeUnit};
pub use output::OutputOptions;
pub use reader::{BlockInfo, Trace};
pub use writer::TraceWriter;
