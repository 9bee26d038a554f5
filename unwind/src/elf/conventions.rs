//! What an ELF file says of the conventions of its code, but for its symbols
//! (`convention::by_symbols`): Go's table of functions, and the debugging information.
//!
//! Where they disagree, what is said of a function overrules what is said of a compilation unit,
//! and that overrules Go's table.

use super::{Elf, File, producers};
use crate::convention::gopclntab::{ALIGN, GoFunctions, SECTIONS, TEXT_START, magic};
use crate::convention::{Convention, Conventions, Evidence, Span, by_symbols};
use crate::image::{Bytes, Section, SectionKind, Symbol};
use alloc::borrow::Cow;
use alloc::vec::Vec;
use object::elf;
use object::endian::LittleEndian as LE;
use object::read::elf::{ProgramHeader as _, SectionHeader as _};

/// Adds what the file says to the image's parts. `producers`: read the debugging information, too.
pub(super) fn read(file: &File<'_>, producers: bool, out: &mut Elf) {
    let mut said = Conventions::default();
    said.overlay(go_spans(file));
    if producers {
        // That C's units are C's only matters beside others.
        let mut known = by_symbols(out.parts.symbols.iter().map(Symbol::named));
        known.overlay(said.spans().to_vec());
        let found = producers::read(&debug_sections(file));
        let is_system_v = |span: &Span| span.convention == Convention::SystemV;
        let units_are_plain = found.units.iter().all(is_system_v);
        if !known.is_system_v() || !units_are_plain {
            said.overlay(found.units);
        }
        said.overlay(found.functions);
    }
    if said.spans().is_empty() {
        return;
    }
    out.parts.sections.push(Section {
        kind: SectionKind::Conventions,
        address: 0,
        data: Bytes::from_vec(said.encode()),
    });
}

/// The sections of the debugging information, unpacked where that is possible.
fn debug_sections<'a>(file: &File<'a>) -> producers::Sections<'a> {
    let mut out = Vec::new();
    for header in file.table.iter() {
        let name = file.name(header);
        let mut needed = producers::NEEDED.into_iter();
        let Some(id) = needed.find(|id| id.name().as_bytes() == name) else {
            continue;
        };
        let data = header.data(LE, file.data).unwrap_or_default();
        let is_packed = header.sh_flags(LE).0 & elf::SHF_COMPRESSED.0 != 0;
        let data = if is_packed {
            unpack(data).map(Cow::Owned)
        } else {
            Some(Cow::Borrowed(data))
        };
        out.extend(data.map(|data| (id, data)));
    }
    producers::Sections(out)
}

#[cfg(feature = "unpack")]
fn unpack(data: &[u8]) -> Option<Vec<u8>> {
    use super::{Compression, sections::CHDR_SIZE};
    let (header, packed) = data.split_first_chunk::<{ CHDR_SIZE as usize }>()?;
    let compression = match header.first_chunk().copied().map(u32::from_le_bytes)? {
        1 => Compression::Zlib,
        2 => Compression::Zstd,
        _ => return None,
    };
    super::unpack::unpack(compression, packed).ok()
}

#[cfg(not(feature = "unpack"))]
fn unpack(_data: &[u8]) -> Option<Vec<u8>> {
    None
}

/// The name and type of the note with Go's build ID.
const GO_NOTE: (&[u8], u32) = (b"Go", 4);

/// The code that the table lists.
fn go_spans(file: &File<'_>) -> Vec<Span> {
    let is_table = |name: &[u8]| SECTIONS.iter().any(|section| section.as_bytes() == name);
    let mut sections = file.table.iter();
    let named = sections.find(|header| is_table(file.name(header)));
    if let Some(header) = named {
        let data = header.data(LE, file.data).unwrap_or_default();
        return go_functions(file, header.sh_addr(LE), data).unwrap_or_default();
    }
    if !has_go_note(file) {
        return Vec::new();
    }
    // The section headers are gone, or the linker joined the table with other data.
    let loads = file.programs.iter();
    let mut loads = loads.filter(|p| p.p_type(LE) == elf::PT_LOAD);
    let found = loads.find_map(|p| {
        let data = p.data(LE, file.data).ok()?;
        (0..data.len()).step_by(ALIGN).find_map(|at| {
            let table = data.get(at..)?;
            magic(table)?;
            go_functions(file, p.p_vaddr(LE).wrapping_add(at as u64), table)
        })
    });
    found.unwrap_or_default()
}

fn has_go_note(file: &File<'_>) -> bool {
    let mut programs = file.programs.iter();
    programs.any(|p| {
        let Ok(Some(mut notes)) = p.notes(LE, file.data) else {
            return false;
        };
        while let Ok(Some(note)) = notes.next() {
            if (note.name(), note.n_type(LE).0) == GO_NOTE {
                return true;
            }
        }
        false
    })
}

/// The code of the functions in the table at `address` (svma).
fn go_functions(file: &File<'_>, address: u64, table: &[u8]) -> Option<Vec<Span>> {
    let functions = GoFunctions::read(table, || start_of_text(file, address))?;
    let range = functions.range()?;
    let is_code = file.programs.iter().any(|p| {
        let segment = p.p_vaddr(LE)..p.p_vaddr(LE).saturating_add(p.p_memsz(LE));
        p.p_type(LE) == elf::PT_LOAD
            && p.p_flags(LE).0 & elf::PF_X.0 != 0
            && segment.contains(&range.start)
            && range.end <= segment.end
    });
    (is_code && !range.is_empty()).then(|| {
        [Span {
            range,
            convention: Convention::Go,
            evidence: Evidence::GoFunctions,
        }]
        .into()
    })
}

/// The address of the first function, where the header does not have it: the loader puts it there,
/// or (Go 1.26) it is the start of the section with code.
fn start_of_text(file: &File<'_>, table: u64) -> Option<u64> {
    let place = table.wrapping_add(TEXT_START as u64);
    let relocated = file.table.iter().find_map(|header| {
        let (relocations, _) = header.rela(LE, file.data).ok()??;
        let here = |r: &&elf::Rela64<LE>| {
            r.r_offset.get(LE) == place && r.r_type(LE, false) == elf::R_X86_64_RELATIVE
        };
        let found = relocations.iter().find(here)?;
        Some(found.r_addend.get(LE).cast_unsigned())
    });
    relocated.or_else(|| {
        let text = file.table.iter().find(|h| file.name(h) == b".text")?;
        Some(text.sh_addr(LE))
    })
}
