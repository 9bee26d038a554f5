//! The header and the records of a jitdump file.

use super::{
    Clock, FUNCTIONS_MAX, Function, HEADER_SIZE, Problem, Unwinding, VERSION, u32_at, u64_at,
};
use std::collections::HashMap;
use unwind_sim_unwind::image::Bytes;

/// `JiTD`, as a little-endian word.
pub(super) const MAGIC: [u8; 4] = 0x4a69_5444u32.to_le_bytes();
/// Size of the header of a record, bytes.
const RECORD_SIZE: usize = 16;
/// `JITDUMP_FLAGS_ARCH_TIMESTAMP`: times are the processor's (`rdtsc`).
pub(super) const ARCH_TIMESTAMP: u64 = 1;
/// `EM_X86_64`. CPython 3.13.0 leaves 0 in the field, and perf does not check it.
const MACHINES: [u32; 2] = [0, 62];
/// Bytes of names and unwind entries that moves may repeat in a small file.
pub(super) const MOVED_MIN: usize = 1 << 20;

/// `enum jit_record_type`.
pub(super) mod kind {
    pub(in super::super) const CODE_LOAD: u32 = 0;
    pub(in super::super) const CODE_MOVE: u32 = 1;
    pub(in super::super) const CODE_CLOSE: u32 = 3;
    pub(in super::super) const CODE_UNWINDING_INFO: u32 = 4;
}

/// The header of a file.
#[derive(Clone, Debug)]
pub(super) struct Header {
    /// Its size, bytes: the first record follows.
    pub(super) size: usize,
    pub(super) pid: u32,
    pub(super) clock: Clock,
}

impl Header {
    /// Reads the header at the start of a file.
    pub(super) fn read(bytes: &[u8]) -> Result<Header, Problem> {
        if !bytes.starts_with(&MAGIC) {
            return Err(Problem::Magic);
        }
        if bytes.len() < HEADER_SIZE {
            let have = bytes.len() as u64;
            return Err(Problem::Short { have });
        }

        let word = |at| u32_at(bytes, at).unwrap_or_default();
        // `struct jitheader`: after the magic come version, total_size, elf_mach, a gap, and pid.
        let [version, size, machine, pid] = [4, 8, 12, 20].map(word);
        if version > VERSION {
            return Err(Problem::Version(version));
        }
        if !MACHINES.contains(&machine) {
            return Err(Problem::Machine(machine));
        }
        // It may have more fields than these, but not fewer.
        if (size as usize) < HEADER_SIZE {
            return Err(Problem::HeaderSize(size));
        }

        // Bit 0 says that times are of the TSC (jitdump-specification.txt of perf).
        let flags = u64_at(bytes, 32).unwrap_or_default();
        Ok(Header {
            size: size as usize,
            pid,
            clock: match flags & ARCH_TIMESTAMP {
                0 => Clock::Monotonic,
                _ => Clock::Tsc,
            },
        })
    }
}

/// What is known after some records.
#[derive(Clone, Debug, Default)]
pub(super) struct Records {
    /// The functions, in the order of the file.
    pub(super) functions: Vec<Function>,
    /// Whether there was a JIT_CODE_CLOSE, behind which nothing counts.
    pub(super) is_closed: bool,
    /// Unwind entries precede their function.
    unwinding: Option<Unwinding>,
    /// The latest function of each number: what a move refers to.
    numbers: HashMap<u64, usize>,
    /// Bytes of names and unwind entries that moves have repeated. The size of the file does not
    /// bound them.
    repeated: usize,
}

impl Records {
    /// Reads the complete records of `bytes` from `at` on. These bytes are at `offset` in a file of
    /// which `known` bytes are there. Returns where they end.
    pub(super) fn read(
        &mut self,
        bytes: &Bytes,
        offset: u64,
        mut at: usize,
        known: usize,
    ) -> Result<usize, Problem> {
        while !self.is_closed {
            // A record begins with `id` and `total_size` (perf's `jitdump-specification.txt`).
            let (Some(kind), Some(size)) = (u32_at(bytes, at), u32_at(bytes, at.saturating_add(4)))
            else {
                break;
            };
            let malformed = Problem::Record {
                offset: offset + at as u64,
                kind,
            };

            let end = at.checked_add(size as usize);
            let end = end
                // A shorter record would not move on, and the loop would not end.
                .filter(|end| *end >= at + RECORD_SIZE)
                .ok_or(malformed)?;
            let Some(record) = bytes.part(at..end) else {
                // The rest of the record is not written yet.
                break;
            };

            self.record(kind, &record, known).ok_or(malformed)??;
            at = end;
        }
        Ok(at)
    }

    /// That the file ends within the record at `at`.
    pub(super) fn cut(&self, at: usize) -> Problem {
        Problem::Cut {
            offset: at as u64,
            functions: self.functions.len() as u64,
        }
    }

    /// Reads one record; `None` if it is malformed.
    fn record(&mut self, kind: u32, record: &Bytes, known: usize) -> Option<Result<(), Problem>> {
        match kind {
            kind::CODE_UNWINDING_INFO => self.unwinding = Some(unwinding_info(record)?),
            kind::CODE_LOAD => {
                let (number, mut function) = load(record)?;
                // Unwinding information comes before the function that it is about.
                function.unwinding = self.unwinding.take();
                self.numbers.insert(number, self.functions.len());
                self.functions.push(function);
            }
            kind::CODE_MOVE => {
                let (number, time, address) = moved(record)?;
                // A move of code that the file does not have says nothing.
                if let Some(function) = self.numbers.get(&number).map(|&i| &self.functions[i]) {
                    let entries = function.unwinding.as_ref().map_or(0, |u| u.data.len());
                    let repeated = self.repeated + function.name.len() + entries;
                    // Every move copies a function, so the size of the file bounds the copies.
                    if repeated > known.max(MOVED_MIN) {
                        return Some(Err(Problem::TooMany));
                    }
                    self.repeated = repeated;
                    address.checked_add(function.size)?;
                    let moved = Function {
                        time,
                        address,
                        ..function.clone()
                    };
                    self.functions.push(moved);
                }
            }
            kind::CODE_CLOSE => self.is_closed = true,
            // Source lines (type 2) are not used. Types of later versions are skipped, as perf does.
            _ => {}
        }

        if self.functions.len() > FUNCTIONS_MAX {
            self.functions.pop();
            return Some(Err(Problem::TooMany));
        }
        Some(Ok(()))
    }
}

/// JIT_CODE_LOAD, and its number.
fn load(record: &Bytes) -> Option<(u64, Function)> {
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
            code: record.part(start..code_end.min(record.len()))?,
            unwinding: None,
        },
    ))
}

/// JIT_CODE_MOVE: the number of the function, the time, and the new address.
fn moved(record: &[u8]) -> Option<(u64, u64, u64)> {
    Some((u64_at(record, 56)?, u64_at(record, 8)?, u64_at(record, 40)?))
}

/// JIT_CODE_UNWINDING_INFO.
fn unwinding_info(record: &Bytes) -> Option<Unwinding> {
    const DATA: usize = RECORD_SIZE + 24;
    let size = usize::try_from(u64_at(record, 16)?).ok()?;
    let header_size = usize::try_from(u64_at(record, 24)?).ok()?;
    let data = record.part(DATA..DATA.checked_add(size)?)?;
    (header_size <= size).then_some(Unwinding { header_size, data })
}
