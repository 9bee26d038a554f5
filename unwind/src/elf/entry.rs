//! The entry point, where the file is a program or an interpreter.
//!
//! Every ELF header has a field for it, but linkers fill it for libraries too, with the start of
//! their code: GNU ld did until 2.35, and gold does. A chain that arrives there is not at its end.

use super::{Elf, File, symbols};
use crate::image::{Bytes, Section, SectionKind};
use alloc::vec::Vec;
use object::elf;
use object::endian::LittleEndian as LE;
use object::read::elf::{FileHeader as _, ProgramHeader as _};

/// What only an interpreter defines: glibc's and musl's.
const INTERPRETERS: [&[u8]; 2] = [b"_rtld_global", b"_dlstart"];

/// Adds the entry point.
pub(super) fn read(file: &File<'_>, header: &elf::FileHeader64<LE>, out: &mut Elf) {
    let entry = header.e_entry(LE);
    let is_code = out.parts.text.iter().any(|text| text.contains(&entry));
    if entry == 0 || !is_code {
        return;
    }
    let starts = header.e_type(LE) == elf::ET_EXEC
        || has_segment(file, elf::PT_INTERP)
        || is_pie(file)
        || is_interpreter(file);
    if starts {
        out.parts.sections.push(Section {
            kind: SectionKind::Entry,
            address: entry,
            data: Bytes::from_vec(Vec::new()),
        });
    }
}

fn has_segment(file: &File<'_>, kind: elf::ProgramType) -> bool {
    file.programs.iter().any(|p| p.p_type(LE) == kind)
}

/// Whether the linker made a position-independent executable, static ones included.
fn is_pie(file: &File<'_>) -> bool {
    let dynamic = file
        .programs
        .iter()
        .find(|p| p.p_type(LE) == elf::PT_DYNAMIC);
    let entries = dynamic.and_then(|p| p.data_as_array::<elf::Dyn64<LE>, _>(LE, file.data).ok());
    let flags = entries.unwrap_or_default().iter();
    let mut flags = flags.filter(|entry| entry.d_tag.get(LE) == elf::DT_FLAGS_1);
    flags.any(|entry| entry.d_val.get(LE) & elf::DF_1_PIE.0 != 0)
}

fn is_interpreter(file: &File<'_>) -> bool {
    let defines = |name: &&[u8]| INTERPRETERS.contains(name);
    symbols::dynamic(file).is_some_and(|table| table.defined().any(|name| defines(&name)))
}
