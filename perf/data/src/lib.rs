//! A reader for perf.data files that avoids copying.
//!
//! The layout is that of `tools/perf/Documentation/perf.data-file-format.txt` and
//! `include/uapi/linux/perf_event.h` (Linux 7.2). [`PerfFile::parse`] reads the header, the
//! attributes and the feature table. Records can then be iterated in file order
//! ([`PerfFile::records`]), or passed to a closure, in file order or in time order, with compressed
//! ones unpacked ([`PerfFile::for_each`]). Nothing panics on bad input: invalid records are skipped
//! and counted, and if the framing is lost, the iteration ends with the reason.
//!
//! This example collects the stack copies of a recording, each with the registers that belong to
//! it:
//!
//! ```
//! use std::ops::ControlFlow;
//! use unwind_sim_perf_data::regs::PERF_REG_X86_IP;
//! use unwind_sim_perf_data::{PerfError, PerfFile, Record};
//!
//! /// Bytes copied of each stack, by the address that was sampled.
//! fn stacks(perf_data: &[u8]) -> Result<Vec<(u64, usize)>, PerfError> {
//!     let file = PerfFile::parse(perf_data)?;
//!     let mut found = Vec::new();
//!     let summary = file.for_each_ordered(|event| {
//!         if let Record::Sample(sample) = event.record
//!             && let Ok(Some((regs, stack))) = sample.user_regs_and_stack()
//!         {
//!             let ip = regs.get(PERF_REG_X86_IP).unwrap_or(0);
//!             found.push((ip, stack.bytes.len()));
//!         }
//!         ControlFlow::Continue(())
//!     });
//!     println!("{} damaged records were left out", summary.skipped);
//!     Ok(found)
//! }
//! # use unwind_sim_perf_data::sample_type as st;
//! # use unwind_sim_perf_data::write::{Body, EventSpec, Id, SampleData, StackCopy, Writer};
//! # let mut event = EventSpec::software("cpu-clock", 0);
//! # event.sample_type = st::TID | st::REGS_USER | st::STACK_USER;
//! # (event.sample_regs_user, event.sample_stack_user) = (1 << PERF_REG_X86_IP, 16);
//! # let mut writer = Writer::new(vec![event]);
//! # let user_stack = StackCopy { bytes: &[7; 16], size: 16 };
//! # let sample = SampleData { user_regs: &[0x401000], user_stack, ..SampleData::default() };
//! # writer.record(&Body::Sample(sample), &Id::default()).unwrap();
//! # assert_eq!(stacks(&writer.finish()).unwrap(), [(0x401000, 16)]);
//! ```
//!
//! Directories of per-thread files (`perf record --threads`), big-endian files and the old
//! `PERFFILE` layout are not supported; each is rejected with its own error.

#![forbid(unsafe_code)]

mod attr;
mod bodies;
pub mod btf;
pub mod callchain;
mod chunks;
mod decode;
mod decoder;
mod error;
mod features;
mod file;
mod file_mode;
mod kernel_code;
mod layout;
pub mod lbr_stitch;
pub mod le;
mod names;
mod object;
mod order;
mod pipe_mode;
mod queue;
mod record;
pub mod regs;
mod sample;
mod sample_parts;
pub mod stitch;
mod unpack;
mod walk;
pub mod write;

pub use attr::{EventAttr, flag};
pub use bodies::{
    Comm, IdIndex, Ksymbol, Mmap, MmapIdentity, Namespaces, Task, ThreadMap, Throttle,
};
pub use callchain::Callchain;
pub use chunks::{Chunk, Chunks};
pub use error::{PerfError, PerfErrorKind, ZstdFault};
pub use features::{BuildId, ClockData, Compression, EventDesc, Features, NamedValue, feature};
pub use file::{Mode, PerfFile};
pub use kernel_code::{KernelCode, KernelMapping, is_core, module_name};
pub use layout::{branch_sample_type, read_format, sample_type};
pub use names::event_name;
pub use object::{KernelPart, Object};
pub use order::{Order, Stop, Summary};
pub use record::{Event, Record, RecordId};
pub use sample::{RegsAndStack, Sample};
pub use sample_parts::{BranchEntry, BranchStack, CounterValue, ReadValues, UserStack};
pub use walk::{RawRecord, Records, misc, record_type};
