//! The build id, from a note in a segment or a section.

use super::{Elf, ElfError, ElfErrorKind, File};
use object::elf;
use object::endian::LittleEndian as LE;
use object::read::elf::{NoteIterator, ProgramHeader as _, SectionHeader as _};

/// The longest build id accepted, bytes. Linkers write at most 20; `--build-id=0x..` may be longer.
const BUILD_ID_LEN_MAX: usize = 64;
/// The maximum number of note segments and sections examined.
const NOTES_MAX: usize = 64;

type Notes<'a> = NoteIterator<'a, elf::FileHeader64<LE>>;

/// Sets the build id from the first `NT_GNU_BUILD_ID`.
pub(super) fn read_build_id(file: &File<'_>, out: &mut Elf) {
    let segments = file.programs.iter();
    for p in segments
        .filter(|p| p.p_type(LE) == elf::PT_NOTE)
        .take(NOTES_MAX)
    {
        let offset = p.p_offset(LE);
        take(p.notes(LE, file.data).transpose(), offset, out);
    }
    let sections = file.table.iter();
    for s in sections
        .filter(|s| s.sh_type(LE) == elf::SHT_NOTE)
        .take(NOTES_MAX)
    {
        take(s.notes(LE, file.data).transpose(), s.sh_offset(LE), out);
    }
}

fn take(notes: Option<object::read::Result<Notes<'_>>>, offset: u64, out: &mut Elf) {
    // A file has one build ID, but may have notes in segments and in sections.
    if !out.parts.build_id.is_empty() {
        return;
    }

    let bad = ElfError::new(ElfErrorKind::Note, "note", offset);
    let mut notes = match notes {
        None => return,
        Some(Ok(notes)) => notes,
        Some(Err(_)) => return out.problems.push(bad),
    };

    loop {
        match notes.next() {
            Ok(Some(note)) if note.n_type(LE) == elf::NT_GNU_BUILD_ID => {
                let id = note.desc();
                // Other owners number their notes as they like; 3 is a build id only for "GNU".
                if note.name() == elf::ELF_NOTE_GNU && id.len() <= BUILD_ID_LEN_MAX {
                    out.parts.build_id = id.to_vec();
                    return;
                }
            }
            Ok(Some(_)) => {}
            Ok(None) => return,
            Err(_) => return out.problems.push(bad),
        }
    }
}
