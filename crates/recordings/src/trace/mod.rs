//! The trace format: `trace.bin`.
//!
//! A trace holds events and samples in time order and the images they refer to, in blocks with
//! checksums, compression and an index. `docs/trace-format.md` specifies it byte by byte.
//! [`TraceWriter`] writes a trace as a stream; [`Trace`] reads one through a memory map, from the
//! start or at any sample.
//!
//! Recording (`host`, the emulator, the importers) and the meaning of samples are elsewhere.
//!
//! ```
//! use unwind_sim_recordings::model::{Event, Item, Region, RegionRole, Sample};
//! use unwind_sim_recordings::trace::{Meta, Trace, TraceWriter};
//! use unwind_sim_unwind::Regs;
//! use unwind_sim_unwind::start::SampleRegs;
//! use unwind_sim_unwind::truth::Truth;
//!
//! // Into memory; a file works as well.
//! let mut writer = TraceWriter::new(Vec::new(), &Meta::default())?;
//! writer.event(&Event::Exec { pid: 7 })?;
//! writer.event(&Event::Map {
//!     pid: 7,
//!     range: 0x401000..0x402000,
//!     bias: 0,
//!     image: None,
//!     name: "/bin/program".into(),
//! })?;
//! writer.sample(&Sample {
//!     pid: 7,
//!     tid: 7,
//!     time: 1_000_000,
//!     regs: SampleRegs::hardware(Regs::frame(0x401100, 0x7000, 0x7000)),
//!     regions: vec![Region {
//!         role: RegionRole::Stack,
//!         bounds: 0x7000..0x7010,
//!         next_sp: 0,
//!         address: 0x7000,
//!         bytes: vec![0; 16].into(),
//!     }],
//!     truth: Truth::Unknown,
//!     recorded: Vec::new(),
//!     branches: Vec::new(),
//!     kernel: None,
//!     process_memory: None,
//! })?;
//!
//! let trace = Trace::from_bytes(writer.finish()?)?;
//! assert_eq!((trace.len(), trace.events()), (1, 2));
//! for item in trace.items() {
//!     if let Item::Sample(sample) = item? {
//!         assert_eq!(sample.regs.sampled.rip(), 0x401100);
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
