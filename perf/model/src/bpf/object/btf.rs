//! The type information of an object, with errors that say where in the file they are.

use super::super::error::{ObjectError, ObjectErrorKind as Kind};
use super::elf::{Section, word};
use unwind_sim_perf_data::btf::{Btf, BtfError, BtfErrorKind, MAGIC_AND_VERSION};

/// The section `.BTF`.
pub(super) struct Types<'a> {
    section: Section<'a>,
    pub(super) btf: Btf<&'a [u8]>,
}

impl<'a> Types<'a> {
    pub(super) fn parse(section: Section<'a>) -> Result<Self, ObjectError> {
        match Btf::parse(section.bytes) {
            Ok(btf) => Ok(Self { section, btf }),
            Err(error) => Err(section.error(Kind::Btf(error.kind), error.offset)),
        }
    }

    /// What the reader of the types says, at its place in the file.
    pub(super) fn at(&self, error: BtfError) -> ObjectError {
        self.error(Kind::Btf(error.kind), error.offset)
    }

    /// An error at offset `at` of the section.
    pub(super) fn error(&self, kind: Kind, at: u64) -> ObjectError {
        self.section.error(kind, at)
    }
}

/// Refuses an object that has relocations against a kernel's types.
pub(super) fn refuse_core(ext: Section<'_>) -> Result<(), ObjectError> {
    let magic = word(&ext, 0)?;
    if magic != MAGIC_AND_VERSION {
        return Err(ext.error(Kind::Btf(BtfErrorKind::Header(magic)), 0));
    }
    // Offset and length of functions and lines come first; older headers end there.
    if word(&ext, 4)? < 32 {
        return Ok(());
    }
    match word(&ext, 28)? {
        // The size of an entry alone.
        0..=4 => Ok(()),
        bytes => Err(ext.error(Kind::Core(bytes), 28)),
    }
}
