//! What the headers of an ELF file say about its indexes of unwind tables, and about what is not in
//! the file. Reads as much as is readable.
//!
//! Sources: System V gABI; `PT_GNU_EH_FRAME` from LSB 5.0 Core.

use object::elf;
use object::endian::LittleEndian as LE;
use object::read::elf::{FileHeader as _, ProgramHeader as _, Rela as _, SectionHeader as _};
use std::ops::Range;

/// The maximum number of relocations of `.sframe` that are kept.
const RELOCATIONS_MAX: usize = 1 << 22;

/// The names of unwind tables and their indexes.
const TABLES: [&str; 7] = [
    ".eh_frame",
    ".eh_frame_hdr",
    ".debug_frame",
    ".sframe",
    ".orc_unwind",
    ".orc_unwind_ip",
    ".orc_header",
];

/// What the headers say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Facts {
    /// The addresses (svma) of the program header `PT_GNU_EH_FRAME`.
    pub(crate) eh_frame_hdr: Option<Range<u64>>,
    /// The addresses (svma) of the section `.eh_frame_hdr`.
    pub(crate) eh_frame_hdr_section: Option<Range<u64>>,
    /// Whether there are program headers of memory to load.
    pub(crate) is_loaded: bool,
    /// Whether no section with code has bytes, as in a file of debug information that was split off.
    pub(crate) is_debug_file: bool,
    /// The names of the sections with unwind tables, in the order of their headers.
    pub(crate) order: Vec<&'static str>,
    /// Unwind tables that have no bytes in this file (`SHT_NOBITS`).
    pub(crate) absent: Vec<&'static str>,
    /// The offsets in `.sframe` that a relocatable object has relocations for, and the offset of each
    /// relocation in the section of relocations, in bytes, by the former.
    pub(crate) sframe_relocations: Vec<(u64, u64)>,
}

impl Facts {
    /// Reads the headers in `data`, the whole file.
    pub(crate) fn read(data: &[u8]) -> Facts {
        let mut out = Facts::default();
        let Ok(header) = elf::FileHeader64::<LE>::parse(data) else {
            return out;
        };

        // Program headers are what a loader sees; section headers may be stripped.
        for program in header.program_headers(LE, data).unwrap_or(&[]) {
            let start = program.p_vaddr(LE);
            match program.p_type(LE) {
                elf::PT_LOAD => out.is_loaded = true,
                elf::PT_GNU_EH_FRAME => {
                    out.eh_frame_hdr = Some(start..start.saturating_add(program.p_memsz(LE)));
                }
                _ => {}
            }
        }

        let Ok(sections) = header.sections(LE, data) else {
            return out;
        };

        // A section has code if it is loaded and executable.
        let code = elf::SHF_ALLOC.0 | elf::SHF_EXECINSTR.0;
        let (mut has_code, mut lacks_code) = (false, false);

        for (index, section) in sections.enumerate() {
            let name = sections.section_name(LE, section).unwrap_or_default();
            let known = TABLES.into_iter().find(|table| table.as_bytes() == name);

            // The order of sections is that of their headers, in which readelf prints them.
            out.order.extend(known);
            let is_empty = section.sh_size(LE) == 0;
            // A debug file has headers for what stayed in the program: `SHT_NOBITS`, with a size
            // and no bytes.
            let is_absent = section.sh_type(LE) == elf::SHT_NOBITS && !is_empty;
            if section.sh_flags(LE).0 & code == code && !is_empty {
                has_code |= !is_absent;
                lacks_code |= is_absent;
            }

            if is_absent {
                out.absent.extend(known);
                continue;
            }

            match known {
                Some(".eh_frame_hdr") if !is_empty => {
                    let start = section.sh_addr(LE);
                    let end = start.saturating_add(section.sh_size(LE));
                    out.eh_frame_hdr_section = Some(start..end);
                }
                Some(".sframe") => {
                    // gABI: `sh_info` of a section of relocations is the section that they apply
                    // to.
                    let of_it = sections
                        .iter()
                        .filter(|s| s.sh_type(LE) == elf::SHT_RELA && s.info_link(LE).0 == index.0);
                    for relocations in of_it {
                        let all: &[elf::Rela64<LE>] =
                            relocations.data_as_array(LE, data).unwrap_or(&[]);
                        out.relocations(all);
                    }
                }
                _ => {}
            }
        }

        // All of its code is missing: then it is a debug file, not a damaged one.
        out.is_debug_file = lacks_code && !has_code;
        out.sframe_relocations.sort_unstable();
        out
    }

    fn relocations(&mut self, all: &[elf::Rela64<LE>]) {
        let size = size_of::<elf::Rela64<LE>>() as u64;
        for (number, relocation) in (0..).zip(all) {
            let is_none = relocation.r_type(LE, false) == elf::R_X86_64_NONE;
            if !is_none && self.sframe_relocations.len() < RELOCATIONS_MAX {
                let place = relocation.r_offset(LE);
                self.sframe_relocations.push((place, number * size));
            }
        }
    }
}
