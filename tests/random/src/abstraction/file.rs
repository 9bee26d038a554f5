//! A file without anything, for an interpreter that has to have one.

use super::meaning::HEAP;
use std::sync::Arc;
use unwind_sim_tables::file::File;

/// Sizes of the headers of an ELF file, bytes.
const HEADER: u16 = 64;
const SEGMENT: u16 = 56;

/// An ELF executable with one segment, of headers only.
pub(super) fn empty() -> File {
    let mut bytes = Vec::new();
    bytes.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    // ET_EXEC, EM_X86_64, version 1.
    for half in [2u16, 62, 1, 0] {
        bytes.extend(half.to_le_bytes());
    }
    // The entry, the segments' place, the sections' place.
    for word in [0u64, HEADER.into(), 0] {
        bytes.extend(word.to_le_bytes());
    }
    for half in [0u16, 0, HEADER, SEGMENT, 1, HEADER, 0, 0] {
        bytes.extend(half.to_le_bytes());
    }
    // PT_LOAD, PF_R: far below everything that instructions access.
    let size = u64::from(HEADER + SEGMENT);
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(4u32.to_le_bytes());
    let address = HEAP.start >> 8 & !0xfff;
    for word in [0u64, address, address, size, size, 0x1000] {
        bytes.extend(word.to_le_bytes());
    }
    File::read("empty", Arc::new(bytes)).expect("the headers are those of an ELF file")
}
