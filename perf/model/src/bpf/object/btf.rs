//! The type information of an object, with errors that say where in the file they are.

use super::super::error::{ObjectError, ObjectErrorKind as Kind};
use super::{Section, Types, word};
use unwind_sim_perf_data::btf::{Btf, BtfErrorKind, MAGIC_AND_VERSION};

impl<'a> Types<'a> {
    pub(super) fn parse(section: Section<'a>) -> Result<Self, ObjectError> {
        match Btf::parse(section.bytes) {
            Ok(btf) => Ok(Self { section, btf }),
            Err(error) => Err(section.error(Kind::Btf(error.kind), error.offset)),
        }
    }
}

/// Refuses an object that has relocations against a kernel's types.
pub(super) fn refuse_core(ext: Section<'_>) -> Result<(), ObjectError> {
    let magic = word(&ext, 0)?;
    if magic != MAGIC_AND_VERSION {
        return Err(ext.error(Kind::Btf(BtfErrorKind::Header(magic)), 0));
    }
    // The offsets and lengths of functions and lines come first; older headers end after them.
    if word(&ext, 4)? < 32 {
        return Ok(());
    }
    match word(&ext, 28)? {
        // Only the size of an entry.
        0..=4 => Ok(()),
        bytes => Err(ext.error(Kind::Core(bytes), 28)),
    }
}
