//! What perf does around an unwinder.
//!
//! Here: reading perf.data ([`PerfFile`]), in file mode, pipe mode and compressed, without
//! copying ([`data`]); callchains with their context markers ([`callchain`]); perf's register
//! numbers ([`regs`]); joining samples with user frames that came later ([`stitch`]); branch
//! records and whose memory keeps them ([`lbr`]); a kernel's sampling as a model in virtual time
//! ([`model`]).
//!
//! Not here: unwinding, symbols, mapping events to images (the importer's job), and memory
//! mapping of the file (the caller hands over bytes).
#![forbid(unsafe_code)]

pub mod bpf;
pub mod callchain;
pub mod data;
pub mod lbr;
pub mod model;
pub mod regs;
pub mod script;
pub mod stitch;

pub use callchain::Callchain;
pub use data::{
    Event, EventAttr, Order, PerfError, PerfErrorKind, PerfFile, RawRecord, Record, Sample, Stop,
    Summary,
};
