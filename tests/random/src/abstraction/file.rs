//! A file without anything, for an interpreter that has to have one.

use super::meaning::HEAP;
use std::sync::Arc;
use unwind_sim_tables::elf_write::{NewFile, NewFileSection};
use unwind_sim_tables::file::File;

/// An ELF executable with one section, far below everything that instructions access.
pub(super) fn empty() -> File {
    let address = HEAP.start >> 8 & !0xfff;
    let section = NewFileSection::without_bytes(".bss", address, 64, NewFileSection::READ_ONLY);
    let file = NewFile {
        entry: Some(address),
        sections: vec![section],
        ..NewFile::default()
    };
    let bytes = file.bytes(u64::MAX).expect("a small file");
    File::read("empty", Arc::new(bytes)).expect("it is an ELF file")
}
