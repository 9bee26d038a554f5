//! A core as a state from which execution can continue: all memory and all registers.
//!
//! Does not read the files whose contents a core omits.

use super::super::{CoreErrorKind, ImportError};
use super::memory::Memory;
use super::notes;
use std::ops::Range;
use unwind_sim_unwind::regs::Regs;

/// A location in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilePlace {
    /// Its path.
    pub path: String,
    /// Offset in the file, bytes.
    pub offset: u64,
}

/// A range of the address space.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Area {
    /// Its addresses.
    pub range: Range<u64>,
    /// Is it readable? Assumed if the core has no segment for it.
    pub readable: bool,
    /// Is it writable?
    pub writable: bool,
    /// Is it executable?
    pub executable: bool,
    /// File range in the core of its first bytes; the rest was not dumped.
    pub dumped: Range<usize>,
    /// The file mapped there.
    pub file: Option<FilePlace>,
}

/// The registers of a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadState {
    /// Thread ID.
    pub tid: u32,
    /// General-purpose registers, rip and flags.
    pub regs: Regs,
    /// The number of the system call that the thread was in, if any.
    pub in_call: Option<u64>,
    /// The base of the fs segment.
    pub fs_base: u64,
    /// The base of the gs segment.
    pub gs_base: u64,
    /// x87 and SSE, as FXSAVE64 stores them.
    pub fx: Option<Box<[u8; 512]>>,
}

/// The contents of a core.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    /// Address ranges, sorted, without overlaps.
    pub areas: Vec<Area>,
    /// Threads in the order of the core; the first is the one that faulted.
    pub threads: Vec<ThreadState>,
}

/// Parses the core in `bytes`.
///
/// # Errors
/// If it is not an x86-64 core, or its headers or notes cannot be read.
pub fn snapshot(bytes: &[u8]) -> Result<Snapshot, ImportError> {
    let (segments, note_ranges) = notes::headers(bytes)?;
    let memory = Memory::new(bytes, segments);
    let mut problems = Vec::new();
    let notes = notes::read(bytes, &note_ranges, &mut problems);
    if notes.threads.is_empty() {
        // What is wrong with the notes says more than that there is no thread.
        return Err(problems.first().cloned().unwrap_or(ImportError::Core {
            what: CoreErrorKind::NoThread,
            section: "notes",
            offset: 0,
        }));
    }

    let place = |address| {
        let file = notes.files.find(address)?;
        Some(FilePlace {
            path: file.name.clone(),
            offset: file.offset_of(address),
        })
    };

    let of_segments = memory.segments().iter().map(|s| {
        // Less than the segment if the kernel did not dump all of it, or the core was cut.
        let dumped = memory.bytes(s.range.start, s.range.end - s.range.start);
        let start = usize::try_from(s.file.start).unwrap_or(0);
        Area {
            range: s.range.clone(),
            readable: s.readable,
            writable: s.writable,
            executable: s.executable,
            dumped: start..start + dumped.len(),
            file: place(s.range.start),
        }
    });

    let unlisted = notes.files.iter();
    let unlisted = unlisted.filter(|f| memory.segment(f.range.start).is_none());
    // gdb omits what it can read from files: code, and constants.
    let of_files = unlisted.map(|f| Area {
        range: f.range.clone(),
        readable: true,
        writable: false,
        executable: true,
        dumped: 0..0,
        file: place(f.range.start),
    });

    let areas: Vec<Area> = of_segments.chain(of_files).collect();
    let areas = apart(areas);

    let threads = notes.threads.into_iter().map(|t| ThreadState {
        tid: t.tid,
        regs: t.regs,
        // -1 outside of system calls (`orig_ax`).
        in_call: (t.orig_rax.cast_signed() >= 0).then_some(t.orig_rax),
        fs_base: t.fs_base,
        gs_base: t.gs_base,
        fx: t.fx,
    });

    Ok(Snapshot {
        areas,
        threads: threads.collect(),
    })
}

/// The areas in the order of their addresses. In a damaged core they may overlap: then the one that
/// starts first counts.
fn apart(mut areas: Vec<Area>) -> Vec<Area> {
    areas.retain(|a| !a.range.is_empty());
    areas.sort_by_key(|a| a.range.start);

    let mut end = 0;
    areas.retain(|a| {
        let apart = a.range.start >= end;
        // One that is dropped hides nothing behind it.
        if apart {
            end = a.range.end;
        }
        apart
    });
    areas
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_area_hides_no_other() {
        let area = |range: Range<u64>| Area {
            range,
            readable: true,
            writable: false,
            executable: false,
            dumped: 0..0,
            file: None,
        };
        let ranges = [
            0x5000..0x6000,
            0x1000..0x3000,
            0x2000..0x9000,
            0x4000..0x4000,
        ];
        let kept = apart(ranges.map(area).to_vec());
        let kept: Vec<_> = kept.into_iter().map(|area| area.range).collect();
        assert_eq!(kept, [0x1000..0x3000, 0x5000..0x6000]);
    }
}
