//! jitdump: the code that a JIT compiler wrote for perf, with names and unwind tables.
//!
//! Source: Linux `tools/perf/Documentation/jitdump-specification.txt` and `tools/perf/util/jitdump.h`
//! (6.12). A file has a header and records. A program maps one page of it executable, so that a
//! recording names the file `jit-PID.dump`.
//!
//! [`Dump::parse`] reads the records, [`Layout`] says which code was where at which time.

mod frames;
mod layout;
#[cfg(test)]
pub(crate) mod tests;

pub use layout::{Entry, Layout};

use std::collections::HashMap;
use unwind_sim_unwind::image::Bytes;

/// `JiTD`, as a little-endian word.
const MAGIC: [u8; 4] = 0x4a69_5444u32.to_le_bytes();
/// Size of the header of a file, bytes.
const HEADER_SIZE: usize = 40;
/// Size of the header of a record, bytes.
const RECORD_SIZE: usize = 16;
/// The latest version.
const VERSION: u32 = 1;
/// `JITDUMP_FLAGS_ARCH_TIMESTAMP`: times are the processor's (`rdtsc`).
const ARCH_TIMESTAMP: u64 = 1;
/// `EM_X86_64`. CPython 3.13.0 leaves 0 in the field, and perf does not check it.
const MACHINES: [u32; 2] = [0, 62];
/// Maximum number of functions in a file; further ones are not read.
const FUNCTIONS_MAX: usize = 1 << 20;
/// Bytes of names and unwind entries that moves may repeat in a small file.
const MOVED_MIN: usize = 1 << 20;

/// `enum jit_record_type`.
mod kind {
    pub(super) const CODE_LOAD: u32 = 0;
    pub(super) const CODE_MOVE: u32 = 1;
    pub(super) const CODE_CLOSE: u32 = 3;
    pub(super) const CODE_UNWINDING_INFO: u32 = 4;
}

/// The clock of the times in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// `CLOCK_MONOTONIC`, nanoseconds. A recording has the same clock after `perf record -k 1`.
    Monotonic,
    /// The processor's time stamp counter.
    Tsc,
}

/// A function at an address, from a certain time on.
#[derive(Clone, PartialEq, Eq, Debug)]
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
    /// Offset of the code in the file, bytes. The file may have fewer bytes than `size`.
    code: std::ops::Range<usize>,
    /// The unwind entries.
    unwinding: Option<Unwinding>,
}

/// The contents of a JIT_CODE_UNWINDING_INFO record.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Unwinding {
    /// Size of the `.eh_frame_hdr` in the data, bytes.
    header_size: usize,
    /// The data: `.eh_frame` and `.eh_frame_hdr`, an offset range in the file.
    data: std::ops::Range<usize>,
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
    bytes: Bytes,
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
        let word = |at| u32_at(&bytes, at);
        if !bytes.starts_with(&MAGIC) {
            return Err(Problem::Magic);
        }
        if bytes.len() < HEADER_SIZE {
            let have = bytes.len() as u64;
            return Err(Problem::Short { have });
        }
        let header = [4, 8, 12, 20].map(|at| word(at).unwrap_or_default());
        let [version, size, machine, pid] = header;
        if version > VERSION {
            return Err(Problem::Version(version));
        }
        if !MACHINES.contains(&machine) {
            return Err(Problem::Machine(machine));
        }
        if (size as usize) < HEADER_SIZE {
            return Err(Problem::HeaderSize(size));
        }
        let flags = u64_at(&bytes, 32).unwrap_or_default();

        let mut dump = Dump {
            bytes: bytes.clone(),
            pid,
            clock: match flags & ARCH_TIMESTAMP {
                0 => Clock::Monotonic,
                _ => Clock::Tsc,
            },
            functions: Vec::new(),
            problem: None,
        };
        dump.problem = dump.records(&bytes, size as usize);
        Ok(dump)
    }

    /// Reads the records from `at` on. Returns why not all of them were read.
    fn records(&mut self, bytes: &[u8], mut at: usize) -> Option<Problem> {
        // Unwind entries precede their function.
        let mut unwinding = None;
        // The latest function of each number: what a move refers to.
        let mut numbers: HashMap<u64, usize> = HashMap::new();
        // A move repeats a name and unwind entries, so the size of the file does not bound them.
        let mut left = bytes.len().max(MOVED_MIN);
        while at < bytes.len() {
            let offset = at as u64;
            let cut = Problem::Cut {
                offset,
                functions: self.functions.len() as u64,
            };
            let (Some(kind), Some(size)) = (u32_at(bytes, at), u32_at(bytes, at + 4)) else {
                return Some(cut);
            };
            let malformed = Some(Problem::Record { offset, kind });
            let end = at.checked_add(size as usize);
            let end = end.filter(|end| *end >= at + RECORD_SIZE);
            let Some(end) = end else {
                return malformed;
            };
            let Some(record) = bytes.get(at..end) else {
                return Some(cut);
            };
            match kind {
                kind::CODE_UNWINDING_INFO => match unwinding_info(record, at) {
                    Some(info) => unwinding = Some(info),
                    None => return malformed,
                },
                kind::CODE_LOAD => {
                    let Some((number, mut function)) = load(record, at) else {
                        return malformed;
                    };
                    function.unwinding = unwinding.take();
                    numbers.insert(number, self.functions.len());
                    self.functions.push(function);
                }
                kind::CODE_MOVE => {
                    let Some((number, time, address)) = moved(record) else {
                        return malformed;
                    };
                    // A move of code that the file does not have says nothing.
                    if let Some(function) = numbers.get(&number).map(|&i| &self.functions[i]) {
                        let entries = function.unwinding.as_ref().map_or(0, |u| u.data.len());
                        let Some(rest) = left.checked_sub(function.name.len() + entries) else {
                            return Some(Problem::TooMany);
                        };
                        left = rest;
                        if address.checked_add(function.size).is_none() {
                            return malformed;
                        }
                        let moved = Function {
                            time,
                            address,
                            ..function.clone()
                        };
                        self.functions.push(moved);
                    }
                }
                kind::CODE_CLOSE => return None,
                // Source lines (type 2) are not used. Types of later versions are skipped, as perf does.
                _ => {}
            }
            if self.functions.len() > FUNCTIONS_MAX {
                self.functions.pop();
                return Some(Problem::TooMany);
            }
            at = end;
        }
        None
    }

    /// The code of a function, as far as the file has it.
    fn code(&self, function: &Function) -> Bytes {
        let part = self.bytes.part(function.code.clone());
        part.unwrap_or_else(|| Bytes::from_vec(Vec::new()))
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

/// JIT_CODE_LOAD, at `at` in the file, and its number.
fn load(record: &[u8], at: usize) -> Option<(u64, Function)> {
    const NAME: usize = RECORD_SIZE + 40;
    let name = record.get(NAME..)?;
    let end = name.iter().position(|&b| b == 0)?;
    let (address, size) = (u64_at(record, 32)?, u64_at(record, 40)?);
    address.checked_add(size)?;
    let start = NAME + end + 1;
    let code_end = start.saturating_add(usize::try_from(size).ok()?);
    Some((
        u64_at(record, 48)?,
        Function {
            time: u64_at(record, 8)?,
            address,
            written_at: address,
            size,
            name: String::from_utf8_lossy(&name[..end]).into_owned(),
            code: at + start..at + code_end.min(record.len()),
            unwinding: None,
        },
    ))
}

/// JIT_CODE_MOVE: the number of the function, the time, and the new address.
fn moved(record: &[u8]) -> Option<(u64, u64, u64)> {
    Some((u64_at(record, 56)?, u64_at(record, 8)?, u64_at(record, 40)?))
}

/// JIT_CODE_UNWINDING_INFO, at `at` in the file.
fn unwinding_info(record: &[u8], at: usize) -> Option<Unwinding> {
    const DATA: usize = RECORD_SIZE + 24;
    let size = usize::try_from(u64_at(record, 16)?).ok()?;
    let header_size = usize::try_from(u64_at(record, 24)?).ok()?;
    record.get(DATA..)?.get(..size)?;
    (header_size <= size).then_some(Unwinding {
        header_size,
        data: at + DATA..at + DATA + size,
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*word))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*word))
}
