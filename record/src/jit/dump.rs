//! jitdump: what a JIT compiler writes for perf (Linux
//! `tools/perf/Documentation/jitdump-specification.txt`, version 2).

use super::frames::{Frames, SECTION_MAX};
use unwind_sim_emulator::AddressSpace;
use unwind_sim_emulator::linux::SystemCall;
use unwind_sim_unwind::image::Symbol;
use unwind_sim_unwind::memory::Memory;

/// `JiTD`, as a little-endian word.
const MAGIC: [u8; 4] = 0x4a69_5444u32.to_le_bytes();
/// Size of the fixed part of the file header, bytes.
const HEADER: usize = 40;
/// Size of a record's header, bytes.
const RECORD: usize = 16;
/// The kinds of records that are read.
const LOAD: u32 = 0;
const MOVE: u32 = 1;
const UNWINDING_INFO: u32 = 4;
/// The maximum number of bytes in one call that are looked at.
const WRITE_MAX: u64 = SECTION_MAX;
/// The maximum number of parts of a `writev` (Linux `UIO_MAXIOV`).
const PARTS_MAX: u64 = 1024;

/// The bytes that a call has written.
pub(super) fn written(call: &SystemCall, memory: &AddressSpace) -> Option<Vec<u8>> {
    let size = call.result;
    if size == 0 || size > WRITE_MAX {
        return None;
    }
    let part = |address: u64, size: u64| {
        let mut bytes = vec![0; usize::try_from(size).ok()?];
        memory.read(address, &mut bytes).ok()?;
        Some(bytes)
    };
    if call.name != "writev" {
        return part(call.args[1], size);
    }
    let mut out = Vec::new();
    for i in 0..call.args[2].min(PARTS_MAX) {
        let at = call.args[1].wrapping_add(i * 16);
        let left = size - out.len() as u64;
        let len = memory.read_u64(at.wrapping_add(8)).ok()?.min(left);
        out.extend(part(memory.read_u64(at).ok()?, len)?);
    }
    Some(out)
}

/// Has a call written the start of a jitdump file?
pub(super) fn starts(call: &SystemCall, memory: &AddressSpace) -> bool {
    let address = match call.name {
        "writev" => memory.read_u64(call.args[1]).ok(),
        _ => Some(call.args[1]),
    };
    let mut bytes = [0; MAGIC.len()];
    let read = address.is_some_and(|address| memory.read(address, &mut bytes).is_ok());
    read && is_header(&bytes)
}

/// Is this the start of a jitdump file of this byte order?
pub(super) fn is_header(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// A function with its unwind entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Load {
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) name: String,
    /// The size of the header of the entries, and both.
    unwinding: Option<(usize, Vec<u8>)>,
}

impl Load {
    /// The unwind entries. They are meant right behind the code, aligned to 8 (Linux
    /// `tools/perf/util/genelf.c`, `jit_write_elf`). There, and in what compilers write, the header
    /// follows the entries; in the specification it precedes them, and then the first byte is its
    /// version. No entry starts with that byte, because lengths are multiples of 4.
    pub(super) fn frames(&self) -> Option<Frames> {
        const VERSION: u8 = 1;
        let (header, all) = self.unwinding.as_ref()?;
        let behind = self.address.checked_add(self.size)?;
        let base = behind.checked_next_multiple_of(8)?;
        let is_first = *header > 0 && all.first() == Some(&VERSION);
        let (skipped, entries) = match is_first {
            true => (*header as u64, all.get(*header..)?),
            false => (0, all.get(..all.len().checked_sub(*header)?)?),
        };
        let mut frames = Frames::eh_frame(base.checked_add(skipped)?, entries.to_vec());
        frames.symbols.push(self.symbol());
        Some(frames)
    }

    fn symbol(&self) -> Symbol {
        Symbol {
            address: self.address,
            size: self.size,
            name: self.name.clone(),
        }
    }
}

/// Reads a jitdump file while it is written.
#[derive(Clone, Debug, Default)]
pub(super) struct Reader {
    /// What is not a whole record yet.
    rest: Vec<u8>,
    /// Has the file header been read?
    begun: bool,
    /// Is the file malformed? Then nothing more is read.
    broken: bool,
    /// The unwind entries of the next function.
    unwinding: Option<(usize, Vec<u8>)>,
}

impl Reader {
    /// Adds what was written, and returns the functions that are complete. A function that was
    /// moved is given again, with its new address.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<Load> {
        if self.broken {
            return Vec::new();
        }
        self.rest.extend_from_slice(bytes);
        let mut out = Vec::new();
        let mut at = 0;
        while let Some(size) = self.size_at(at) {
            let Some(record) = self.rest.get(at..at.saturating_add(size)) else {
                break;
            };
            let record = record.to_vec();
            at += size;
            match self.begun {
                false => self.begun = true,
                true => out.extend(self.record(&record)),
            }
        }
        self.rest.drain(..at);
        if self.broken || self.rest.len() as u64 > 2 * SECTION_MAX {
            (self.broken, self.rest) = (true, Vec::new());
        }
        out
    }

    /// The size of the header or record at `at`, if its own header is there.
    fn size_at(&mut self, at: usize) -> Option<usize> {
        let (offset, least) = match self.begun {
            false => (8, HEADER),
            true => (4, RECORD),
        };
        let header = self.rest.get(at..)?;
        if header.len() < least {
            return None;
        }
        let size = u32_at(header, offset)? as usize;
        self.broken |= size < least;
        (!self.broken).then_some(size)
    }

    fn record(&mut self, record: &[u8]) -> Option<Load> {
        let body = &record[RECORD..];
        match u32_at(record, 0)? {
            UNWINDING_INFO => {
                let size = usize::try_from(u64_at(body, 0)?).ok()?;
                let header = usize::try_from(u64_at(body, 8)?).ok()?;
                let data = body.get(24..)?.get(..size)?;
                self.unwinding = Some((header, data.to_vec()));
                None
            }
            LOAD => {
                let name = body.get(40..)?;
                let end = name.iter().position(|&b| b == 0)?;
                Some(Load {
                    address: u64_at(body, 16)?,
                    size: u64_at(body, 24)?,
                    name: String::from_utf8_lossy(&name[..end]).into_owned(),
                    unwinding: self.unwinding.take(),
                })
            }
            _ => None,
        }
    }
}

/// The functions in a whole file, also those that were moved.
pub(super) fn symbols(file: &[u8]) -> Vec<Symbol> {
    let mut out: Vec<Symbol> = Vec::new();
    if !is_header(file) {
        return out;
    }
    let mut at = u32_at(file, 8).unwrap_or(0) as usize;
    let mut reader = Reader {
        begun: true,
        ..Reader::default()
    };
    while let Some(size) = file.get(at..).and_then(|rest| u32_at(rest, 4)) {
        let size = size as usize;
        let Some(record) = file
            .get(at..at.saturating_add(size))
            .filter(|r| r.len() >= RECORD)
        else {
            break;
        };
        let body = &record[RECORD..];
        if u32_at(record, 0) == Some(MOVE) {
            if let (Some(old), Some(new)) = (u64_at(body, 16), u64_at(body, 24))
                && let Some(moved) = out.iter().rev().find(|s| s.address == old).cloned()
            {
                out.push(Symbol {
                    address: new,
                    ..moved
                });
            }
        } else if let Some(load) = reader.record(record) {
            out.push(load.symbol());
        }
        at += size;
    }
    out
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*word))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*word))
}
