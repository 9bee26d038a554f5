//! The headers of an ELF file as they are stored, and which of its bytes they account for.
//!
//! Source: System V gABI, chapter 4, "ELF Header" and "Sections", chapter 5, "Program Header".

/// Why an ELF file cannot be changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ElfWriteError {
    /// Not a 64-bit little-endian ELF file.
    #[error("{name}: not a 64-bit little-endian ELF file")]
    NotElf {
        /// The file's name.
        name: String,
    },
    /// A part of it lies outside the file.
    #[error("{name}: its {what} at offset {offset:#x} lie outside the file; it is cut off")]
    Cut {
        /// The file's name.
        name: String,
        /// The part of the file that is cut short.
        what: &'static str,
        /// Offset in the file, bytes.
        offset: u64,
    },
    /// It has no segments.
    #[error("{name}: it has no PT_LOAD segment, so nothing in it is found at run time")]
    NoSegments {
        /// The file's name.
        name: String,
    },
    /// There are too many headers for another one.
    #[error("{name}: its headers are too many for another one")]
    TooManyHeaders {
        /// The file's name.
        name: String,
    },
    /// The addresses or the place in the file are used up.
    #[error("{name}: there is no room for a new section after the last segment")]
    NoRoom {
        /// The file's name.
        name: String,
    },
    /// Something is appended to it.
    #[error(
        "{name}: {len} bytes follow its last section, from offset {offset:#x}; programs find such \
         data from the end of the file, so nothing can be added; cut it off first"
    )]
    Overlay {
        /// The file's name.
        name: String,
        /// Offset in the file, bytes.
        offset: u64,
        /// The number of bytes that no header accounts for.
        len: u64,
    },
}

/// `PN_XNUM`: this many program headers or more need another encoding.
pub(super) const PROGRAMS_MAX: usize = 0xffff;
/// `SHN_LORESERVE`: this many sections or more need another encoding.
pub(super) const SECTIONS_MAX: usize = 0xff00;
/// The size of the ELF header, bytes.
const EHDR_LEN: u64 = 64;
const SHT_NOBITS: u32 = 8;
/// Fewer bytes than this may follow the last section, as padding.
const PADDING: u64 = 16;

/// The size of a program header.
pub(super) mod phdr {
    pub(crate) const LEN: usize = 56;
}

/// The size of a section header.
pub(super) mod shdr {
    pub(crate) const LEN: usize = 64;
}

/// A program header.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Program {
    pub(super) kind: u32,
    pub(super) flags: u32,
    pub(super) offset: u64,
    pub(super) address: u64,
    pub(super) physical: u64,
    pub(super) file_size: u64,
    pub(super) memory_size: u64,
    pub(super) align: u64,
}

/// A section header.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Section {
    pub(super) name: u32,
    pub(super) kind: u32,
    pub(super) flags: u64,
    pub(super) address: u64,
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) link: u32,
    pub(super) info: u32,
    pub(super) align: u64,
    pub(super) entry_size: u64,
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    let bytes = data.get(at..)?.first_chunk()?;
    Some(u16::from_le_bytes(*bytes))
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    let bytes = data.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

impl Program {
    fn read(data: &[u8]) -> Option<Program> {
        Some(Program {
            kind: u32_at(data, 0)?,
            flags: u32_at(data, 4)?,
            offset: u64_at(data, 8)?,
            address: u64_at(data, 16)?,
            physical: u64_at(data, 24)?,
            file_size: u64_at(data, 32)?,
            memory_size: u64_at(data, 40)?,
            align: u64_at(data, 48)?,
        })
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(phdr::LEN);
        out.extend(self.kind.to_le_bytes());
        out.extend(self.flags.to_le_bytes());
        for word in [
            self.offset,
            self.address,
            self.physical,
            self.file_size,
            self.memory_size,
            self.align,
        ] {
            out.extend(word.to_le_bytes());
        }
        out
    }
}

impl Section {
    fn read(data: &[u8]) -> Option<Section> {
        Some(Section {
            name: u32_at(data, 0)?,
            kind: u32_at(data, 4)?,
            flags: u64_at(data, 8)?,
            address: u64_at(data, 16)?,
            offset: u64_at(data, 24)?,
            size: u64_at(data, 32)?,
            link: u32_at(data, 40)?,
            info: u32_at(data, 44)?,
            align: u64_at(data, 48)?,
            entry_size: u64_at(data, 56)?,
        })
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(shdr::LEN);
        out.extend(self.name.to_le_bytes());
        out.extend(self.kind.to_le_bytes());
        for word in [self.flags, self.address, self.offset, self.size] {
            out.extend(word.to_le_bytes());
        }
        out.extend(self.link.to_le_bytes());
        out.extend(self.info.to_le_bytes());
        out.extend(self.align.to_le_bytes());
        out.extend(self.entry_size.to_le_bytes());
        out
    }
}

/// What is read of a file.
pub(super) struct ElfHeaders {
    pub(super) programs: Vec<Program>,
    /// At least the null section.
    pub(super) sections: Vec<Section>,
    pub(super) names: Vec<u8>,
    /// The index of the names' section; `None` if there is none.
    pub(super) names_index: Option<usize>,
    pub(super) kept: u64,
}

/// The offset of the section header table, `e_shoff`.
pub(super) fn section_table(data: &[u8]) -> u64 {
    u64_at(data, 0x28).unwrap_or(0)
}

/// The offset of the program header table, `e_phoff`.
pub(super) fn program_table(data: &[u8]) -> u64 {
    u64_at(data, 0x20).unwrap_or(0)
}

/// Reads the headers.
pub(super) fn read(name: &str, data: &[u8]) -> Result<ElfHeaders, ElfWriteError> {
    let not_elf = || ElfWriteError::NotElf {
        name: name.to_owned(),
    };
    let cut = |what, offset| ElfWriteError::Cut {
        name: name.to_owned(),
        what,
        offset,
    };
    let many = || ElfWriteError::TooManyHeaders {
        name: name.to_owned(),
    };

    // Only `ELFCLASS64` and `ELFDATA2LSB`.
    if data.get(..6) != Some(b"\x7fELF\x02\x01") || (data.len() as u64) < EHDR_LEN {
        return Err(not_elf());
    }

    let half = |at| u16_at(data, at).map(usize::from).ok_or_else(not_elf);
    let (entry, count) = (half(0x36)?, half(0x38)?);
    if count >= PROGRAMS_MAX {
        return Err(many());
    }

    // The table must lie inside of the file, whatever its header says.
    let offset = program_table(data);
    let programs = table(data, offset, count, entry, phdr::LEN, Program::read);
    let programs = programs.ok_or_else(|| cut("program headers", offset))?;

    let (entry, count, index) = (half(0x3a)?, half(0x3c)?, half(0x3e)?);
    let offset = section_table(data);
    // A count of 0 with a table means that the count is in the first header (gABI, `e_shnum`).
    if offset != 0 && count == 0 || index >= SECTIONS_MAX {
        return Err(many());
    }

    let sections = table(data, offset, count, entry, shdr::LEN, Section::read);
    let mut sections = sections.ok_or_else(|| cut("section headers", offset))?;
    let table_end = offset.saturating_add((count * shdr::LEN) as u64);

    // Index 0 means that there are no names (`SHN_UNDEF`).
    let names_section = sections.get(index).filter(|_| index != 0);
    if index != 0 && names_section.is_none() {
        return Err(cut("section names", offset));
    }
    let has_names = names_section.is_some();
    let names = match names_section {
        Some(section) => range(data, section.offset, section.size)
            .ok_or_else(|| cut("section names", section.offset))?
            .to_vec(),
        None => {
            // Names in a table that is not there must not become names in a new one.
            sections.iter_mut().for_each(|section| section.name = 0);
            vec![0]
        }
    };

    // What headers account for ends here; behind it is nothing, or data that only the program
    // knows.
    let before = used(&programs, &sections);
    let used = before.max(table_end).max(EHDR_LEN);
    let len = data.len() as u64;
    if used > len {
        return Err(cut("contents of segments or sections", used));
    }
    // A program may find data that no header has from the end of its file.
    if len - used >= PADDING {
        return Err(ElfWriteError::Overlay {
            name: name.to_owned(),
            offset: used,
            len: len - used,
        });
    }

    // A section header table at the very end is written anew, so that the old one can go.
    let at_end = count != 0 && offset >= before && offset >= EHDR_LEN;
    let kept = if at_end { offset.min(len) } else { len };

    // Section header 0 is reserved and all zeros (gABI, `SHN_UNDEF`).
    if sections.is_empty() {
        sections.push(Section::default());
    }

    let names_index = has_names.then_some(index);
    Ok(ElfHeaders {
        programs,
        sections,
        names,
        names_index,
        kept,
    })
}

/// Where the last byte is that a segment or section accounts for.
fn used(programs: &[Program], sections: &[Section]) -> u64 {
    let programs = programs
        .iter()
        .map(|p| p.offset.saturating_add(p.file_size));
    let stored = sections.iter().filter(|s| s.kind != SHT_NOBITS);
    let sections = stored.map(|s| s.offset.saturating_add(s.size));
    programs.chain(sections).max().unwrap_or(0)
}

fn range(data: &[u8], offset: u64, len: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(len).ok()?)?;
    data.get(start..end)
}

fn table<T>(
    data: &[u8],
    offset: u64,
    count: usize,
    entry: usize,
    len: usize,
    read: fn(&[u8]) -> Option<T>,
) -> Option<Vec<T>> {
    if count == 0 {
        return Some(Vec::new());
    }
    if entry != len {
        return None;
    }
    let bytes = range(data, offset, (count * len) as u64)?;
    bytes.chunks_exact(len).map(read).collect()
}

/// Writes the places and numbers of the tables into the ELF header.
pub(super) fn patch(
    out: &mut [u8],
    programs: u64,
    program_count: usize,
    sections: u64,
    section_count: usize,
    names_index: usize,
) {
    let half = |n: usize| u16::try_from(n).unwrap_or(0).to_le_bytes();
    super::put(out, 0x20, &programs.to_le_bytes());
    super::put(out, 0x28, &sections.to_le_bytes());
    super::put(out, 0x36, &half(phdr::LEN));
    super::put(out, 0x38, &half(program_count));
    super::put(out, 0x3a, &half(shdr::LEN));
    super::put(out, 0x3c, &half(section_count));
    super::put(out, 0x3e, &half(names_index));
}
