//! jitdump: the code that a JIT compiler wrote for perf, with names and unwind tables.
//!
//! Source: Linux `tools/perf/Documentation/jitdump-specification.txt` and `tools/perf/util/jitdump.h`
//! (6.12). A file has a header and records. A program maps one page of it executable, so that a
//! recording names the file `jit-PID.dump`.
//!
//! [`Dump::parse`] reads a file, [`Stream`] one that is being written. [`Layout`] says which code was
//! where at which time.

mod frames;
mod layout;
mod records;
mod stream;
#[cfg(test)]
pub(crate) mod tests;

pub use layout::{Entry, Layout};
pub use stream::Stream;

use records::{Header, Records};
use unwind_sim_unwind::image::Bytes;

/// Maximum number of functions in a file; further ones are not read.
const FUNCTIONS_MAX: usize = 1 << 20;
/// Size of the header of a file, bytes.
const HEADER_SIZE: usize = 40;
/// The latest version.
const VERSION: u32 = 1;

/// The clock of the times in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// `CLOCK_MONOTONIC`, nanoseconds. A recording has the same clock after `perf record -k 1`.
    Monotonic,
    /// The processor's time stamp counter.
    Tsc,
}

/// A function at an address, from a certain time on.
#[derive(Clone, Debug)]
pub struct Function {
    /// When it was written, or moved there.
    pub time: u64,
    /// Its address.
    pub address: u64,
    /// Where it was written: another address than `address` if it was moved.
    pub written_at: u64,
    /// Size of the code, bytes.
    pub size: u64,
    /// Name.
    pub name: String,
    /// The code. The file may have fewer bytes than `size`.
    code: Bytes,
    /// The unwind entries.
    unwinding: Option<Unwinding>,
}

/// The contents of a JIT_CODE_UNWINDING_INFO record.
#[derive(Clone, Debug)]
struct Unwinding {
    /// Size of the `.eh_frame_hdr` in the data, bytes.
    header_size: usize,
    /// The data: `.eh_frame` and `.eh_frame_hdr`.
    data: Bytes,
}

/// Why a file, or the rest of it, is not used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// It does not start with the magic number in this byte order.
    #[error("not a jitdump file of x86-64: it does not start with `DTiJ`")]
    Magic,
    /// The header is not complete.
    #[error("the header needs {HEADER_SIZE} bytes, the file has {have}")]
    Short {
        /// Size of the file, bytes.
        have: u64,
    },
    /// A later version.
    #[error("jitdump version {0}; versions up to {VERSION} are known")]
    Version(u32),
    /// The code of another machine.
    #[error("code of ELF machine {0}; only x86-64 (62) is supported")]
    Machine(u32),
    /// The header's size is impossible.
    #[error("header size {0} is impossible")]
    HeaderSize(u32),
    /// The file ends within a record.
    #[error(
        "ends within the record at offset {offset:#x}: was the program still running? the functions \
         before it ({functions}) are used"
    )]
    Cut {
        /// Offset of the record, bytes.
        offset: u64,
        /// Number of functions before it.
        functions: u64,
    },
    /// A record is malformed.
    #[error(
        "the record of type {kind} at offset {offset:#x} is malformed; what follows is not used"
    )]
    Record {
        /// Offset of the record, bytes.
        offset: u64,
        /// Type of the record.
        kind: u32,
    },
    /// There are too many functions.
    #[error("more than {FUNCTIONS_MAX} functions, or more moves than fit; the rest is not used")]
    TooMany,
    /// Unwind entries cannot be used.
    #[error("the unwind entries of {count} functions cannot be read, the first at {address:#x}")]
    Unwinding {
        /// Number of functions.
        count: u64,
        /// Address of the first one.
        address: u64,
    },
    /// The times are of another clock than those of the samples.
    #[error(
        "{count} functions were replaced by others at the same address, and it is not known when: \
         the clock of the samples is another one (`perf record -k 1` uses the same); these functions \
         are not used"
    )]
    Clock {
        /// Number of functions.
        count: u64,
    },
}

/// The contents of a jitdump file.
#[derive(Clone, Debug)]
pub struct Dump {
    /// The process that wrote it, in its own PID namespace.
    pub pid: u32,
    /// The clock.
    pub clock: Clock,
    /// The functions, in the order of the file.
    pub functions: Vec<Function>,
    /// Why the rest was not read.
    pub problem: Option<Problem>,
}

impl Dump {
    /// Reads a file, as far as it goes.
    ///
    /// # Errors
    /// If its header cannot be used.
    pub fn parse(bytes: Bytes) -> Result<Dump, Problem> {
        let header = Header::read(&bytes)?;
        let mut records = Records::default();
        let problem = match records.read(&bytes, 0, header.size, bytes.len()) {
            Ok(at) if at < bytes.len() && !records.is_closed => Some(records.cut(at)),
            Ok(_) => None,
            Err(problem) => Some(problem),
        };
        Ok(Dump {
            pid: header.pid,
            clock: header.clock,
            functions: records.functions,
            problem,
        })
    }
}

/// Is this the path of a jitdump file, `jit-PID.dump`? perf knows it by this name, too
/// (`jit_detect` in `tools/perf/util/jitdump.c`).
pub fn is_name(path: &str) -> bool {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let name = path.rsplit('/').next().unwrap_or(path);
    let pid = name
        .strip_prefix("jit-")
        .and_then(|n| n.strip_suffix(".dump"));
    pid.is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*word))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*word))
}
