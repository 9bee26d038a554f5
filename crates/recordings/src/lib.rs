//! Recordings: `trace.bin`, importers, image and symbol files, kernel images.
//!
//! - [`trace`] reads and writes the trace format.
//! - [`import`] reads perf.data files, cores, captures and dumps as a stream of items; [`convert`]
//!   turns them into traces.
//! - [`files`] finds image files, [`names`] the names of code in them, [`kernel`] reads kernel images.
//! - [`jitdump`], [`gdb_jit`] and [`registered`] read what programs say about their generated code, [`runtime`] tells
//!   which runtime and which memory it is.
//! - [`console`] has the stacks that a kernel prints, and reads them from its log.
//! - [`crash`] says which thread of a core died, and by which signal.
//! - [`similar`] finds the name that was meant.
//! - [`view`] is one sample together with its process's mappings.
//!
//! The threads of a core, or the samples of any other recording, each unwound:
//!
//! ```
//! use std::ops::ControlFlow;
//! use std::path::Path;
//! use std::sync::Arc;
//! use unwind_sim_recordings::convert::OpenOptions;
//! use unwind_sim_recordings::input_file::InputFile;
//! use unwind_sim_recordings::recording::Recording;
//! use unwind_sim_recordings::view::MemoryView;
//! use unwind_sim_unwind::{Cache, Dwarf, Stack, Start, Unwinder};
//!
//! // A file that is not compressed is opened by `InputFile::open`.
//! let packed = std::fs::read("corpus/cores/threads.core.zst")?;
//! let core = Arc::new(zstd::decode_all(&packed[..])?);
//! let file = InputFile::held(Path::new("threads.core"), core);
//! let recording = Recording::open(&file, &OpenOptions::default())?;
//!
//! let (dwarf, mut cache, mut frames) = (Dwarf::new(), Cache::new(), Vec::new());
//! recording.views(&mut |view| {
//!     let start = Start::from_regs(view.live());
//!     let memory = view.memory(MemoryView::Cpu);
//!     let chain = dwarf.walk(&Stack::new(&start, view.space, &memory), &mut cache);
//!     println!("{}: {} frames, {}", view.sample.tid, chain.frames.len(), chain.end.reason);
//!     frames.push(chain.frames.len());
//!     ControlFlow::Continue(())
//! })?;
//! // The files of this core are on another machine, but each thread has its first frame.
//! assert_eq!(frames.len(), 3);
//! assert!(frames.iter().all(|&frames| frames >= 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod branches;
pub mod case_limits;
pub mod console;
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
