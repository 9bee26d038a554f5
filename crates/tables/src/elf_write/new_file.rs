//! New ELF files: sections at given addresses, symbols, and the segments by which both are found.
//!
//! There are no relocations, nothing for a dynamic linker, and no order but the given one. What a file that
//! is already there keeps in its place is written by [`Editor`](super::Editor).
//!
//! Source: System V gABI, chapters 4 and 5.

use object::Endianness;
use object::elf::{
    EM_X86_64, ET_DYN, ET_EXEC, PF_R, PF_W, PF_X, PT_GNU_EH_FRAME, PT_GNU_STACK, PT_LOAD,
    SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, SHN_UNDEF, SHT_NOBITS, SHT_PROGBITS, STB_GLOBAL, STT_FUNC,
    SectionFlags, SectionType, SymbolOther,
};
use object::write::StringId;
use object::write::elf::{FileHeader, ProgramHeader, SectionHeader, SectionIndex, Sym, Writer};
use unwind_sim_unwind::image::SectionKind;

/// The page size of x86-64, bytes.
const PAGE: u64 = 0x1000;
/// Sections that are not loaded start at a multiple of this, bytes.
const ALIGN: u64 = 8;

/// Why a new file cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NewFileError {
    /// A count or a table of names is too large for its field.
    #[error("its sections or names are too many for an ELF file")]
    TooMany,
    /// The file would be larger than allowed.
    #[error("it would have {len} bytes, more than {max}")]
    TooLong {
        /// The length of the file, bytes.
        len: u64,
        /// The maximum, bytes.
        max: u64,
    },
    /// So many bytes cannot be allocated.
    #[error("there is no memory for it")]
    NoMemory,
}

/// A section of a new file.
#[derive(Clone, Copy, Debug)]
pub struct NewFileSection<'a> {
    /// Its name.
    pub name: &'a str,
    /// `sh_type`; `SHT_NOBITS` if it has no bytes in the file.
    pub kind: u32,
    /// `sh_flags`. A section with `SHF_ALLOC` is loaded, by a segment of its own.
    pub flags: u64,
    /// Its address (svma).
    pub address: u64,
    /// Its size in memory, bytes.
    pub size: u64,
    /// Its contents; none if they are not known, or zeros.
    pub bytes: &'a [u8],
}

impl<'a> NewFileSection<'a> {
    /// Code at an address (svma).
    pub const CODE: u64 = SHF_ALLOC.0 | SHF_EXECINSTR.0;
    /// What is only read.
    pub const READ_ONLY: u64 = SHF_ALLOC.0;
    /// What is written.
    pub const DATA: u64 = SHF_ALLOC.0 | SHF_WRITE.0;

    /// A section with contents that is not loaded.
    pub fn new(name: &'a str, bytes: &'a [u8]) -> NewFileSection<'a> {
        NewFileSection {
            name,
            kind: SHT_PROGBITS.0,
            flags: 0,
            address: 0,
            size: bytes.len() as u64,
            bytes,
        }
    }

    /// The section, loaded at `address`.
    pub const fn at(self, address: u64, flags: u64) -> NewFileSection<'a> {
        NewFileSection {
            address,
            flags,
            ..self
        }
    }

    /// A section of `size` bytes that are not in the file.
    pub const fn without_bytes(
        name: &'a str,
        address: u64,
        size: u64,
        flags: u64,
    ) -> NewFileSection<'a> {
        NewFileSection {
            name,
            kind: SHT_NOBITS.0,
            flags,
            address,
            size,
            bytes: &[],
        }
    }

    const fn has(&self, flag: SectionFlags) -> bool {
        self.flags & flag.0 != 0
    }

    /// The segments of this section, which is at `offset` in the file.
    fn segments(&self, offset: u64) -> impl Iterator<Item = ProgramHeader> + use<> {
        let mut flags = PF_R;
        if self.has(SHF_WRITE) {
            flags |= PF_W;
        }
        if self.has(SHF_EXECINSTR) {
            flags |= PF_X;
        }

        let (address, size, length) = (self.address, self.size, self.bytes.len() as u64);
        let header = |p_type, p_flags, p_align| ProgramHeader {
            p_type,
            p_flags,
            p_offset: offset,
            p_vaddr: address,
            p_paddr: address,
            p_filesz: length,
            p_memsz: size,
            p_align,
        };

        let load = self.has(SHF_ALLOC).then(|| header(PT_LOAD, flags, PAGE));
        // By this one unwinders find the table.
        let is_index = self.name == SectionKind::EhFrameHdr.as_str();
        let index = is_index.then(|| header(PT_GNU_EH_FRAME, PF_R, 4));
        load.into_iter().chain(index)
    }
}

/// A function of a new file.
#[derive(Clone, Copy, Debug)]
pub struct NewFileSymbol<'a> {
    /// Its name, which ends where it has a zero.
    pub name: &'a str,
    /// Its address (svma).
    pub address: u64,
    /// Its size, bytes.
    pub size: u64,
    /// The index of its section among [`NewFile::sections`]; `None` if it is in none.
    pub section: Option<usize>,
}

/// An ELF file to be written.
#[derive(Clone, Debug, Default)]
pub struct NewFile<'a> {
    /// The address (svma) at which an executable starts; `None` for a shared object.
    pub entry: Option<u64>,
    /// The sections, in the order of the file.
    pub sections: Vec<NewFileSection<'a>>,
    /// The symbols of `.symtab`, which follows the sections. Without any, there is no such section.
    pub symbols: Vec<NewFileSymbol<'a>>,
}

impl NewFile<'_> {
    /// The file's bytes, of which there may be `max`.
    ///
    /// # Errors
    /// If there would be more, or a count does not fit.
    pub fn bytes(&self, max: u64) -> Result<Vec<u8>, NewFileError> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(Endianness::Little, true, &mut bytes);
        let places = self.place(&mut writer)?;

        // Nothing was allocated for the contents yet.
        let len = writer.reserved_len();
        if len > max {
            return Err(NewFileError::TooLong { len, max });
        }

        self.fill(&mut writer, &places)?;
        Ok(bytes)
    }

    /// Lays out the file. Section headers are in the order of the sections, then come those of strings,
    /// symbols and names.
    fn place<'a>(&'a self, writer: &mut Writer<'a>) -> Result<Places, NewFileError> {
        // From `SHN_LORESERVE` on, numbers of sections have other meanings.
        if self.sections.len() >= 0xff00 - 4 {
            return Err(NewFileError::TooMany);
        }

        let add_name = |section: &NewFileSection<'a>| {
            writer.reserve_section_index();
            writer.add_section_name(section.name.as_bytes())
        };
        let names = self.sections.iter().map(add_name).collect();

        let add_symbol = |symbol: &NewFileSymbol<'a>| {
            writer.reserve_symbol_index(symbol.index());
            let mut name = symbol.name.as_bytes().split(|&byte| byte == 0);
            writer.add_string(name.next().unwrap_or_default())
        };
        let symbols = self.symbols.iter().map(add_symbol).collect();
        if !self.symbols.is_empty() {
            writer.reserve_strtab_section_index();
            writer.reserve_symtab_section_index();
        }
        writer.reserve_shstrtab_section_index();

        writer.reserve_file_header();
        let segments = self.sections.iter().map(|s| s.segments(0).count());
        // One more for the stack.
        writer.reserve_program_headers(segments.sum::<usize>() as u32 + 1);

        let place = |section: &NewFileSection<'_>| {
            let at = writer.reserved_len();
            // gABI, "Program Loading": `p_vaddr` and `p_offset` are equal modulo the page size.
            let gap = if section.has(SHF_ALLOC) {
                section.address.wrapping_sub(at) % PAGE
            } else {
                at.wrapping_neg() % ALIGN
            };
            writer.reserve_until(at + gap);
            writer.reserve(section.bytes.len() as u64, 1)
        };
        let offsets = self.sections.iter().map(place).collect();

        // They fail where a table has 4 GiB.
        let too_many = |_| NewFileError::TooMany;
        writer.reserve_strtab().map_err(too_many)?;
        writer.reserve_symtab();
        writer.reserve_shstrtab().map_err(too_many)?;
        writer.reserve_section_headers();

        Ok(Places {
            offsets,
            names,
            symbols,
        })
    }

    /// Writes what was reserved, in the same order.
    fn fill(&self, writer: &mut Writer<'_>, places: &Places) -> Result<(), NewFileError> {
        let header = FileHeader {
            e_type: self.entry.map_or(ET_DYN, |_| ET_EXEC),
            e_machine: EM_X86_64,
            e_entry: self.entry.unwrap_or(0),
            ..FileHeader::default()
        };
        let written = writer.write_file_header(&header);
        written.map_err(|_| NewFileError::NoMemory)?;

        writer.write_align_program_headers();
        let sections = || self.sections.iter().zip(&places.offsets);
        for segment in sections().flat_map(|(section, &offset)| section.segments(offset)) {
            writer.write_program_header(&segment);
        }
        // Without this one Linux makes the stack executable.
        writer.write_program_header(&ProgramHeader {
            p_type: PT_GNU_STACK,
            p_flags: PF_R | PF_W,
            p_offset: 0,
            p_vaddr: 0,
            p_paddr: 0,
            p_filesz: 0,
            p_memsz: 0,
            p_align: 16,
        });

        for (section, &offset) in sections() {
            writer.pad_until(offset);
            writer.write(section.bytes);
        }

        writer.write_strtab();
        writer.write_null_symbol();
        for (symbol, &name) in self.symbols.iter().zip(&places.symbols) {
            writer.write_symbol(&Sym {
                section: symbol.index().map(|index| index.0),
                st_name: writer.string_offset(Some(name)),
                st_info: STT_FUNC | STB_GLOBAL,
                st_other: SymbolOther(0),
                st_shndx: SHN_UNDEF,
                st_value: symbol.address,
                st_size: symbol.size,
            });
        }
        writer.write_shstrtab();

        writer.write_null_section_header();
        for ((section, &offset), &name) in sections().zip(&places.names) {
            writer.write_section_header(&SectionHeader {
                sh_name: writer.section_name_offset(Some(name)),
                sh_type: SectionType(section.kind),
                sh_flags: SectionFlags(section.flags),
                sh_addr: section.address,
                sh_offset: offset,
                sh_size: section.size,
                sh_link: 0,
                sh_info: 0,
                // The addresses are given, whatever alignment they have.
                sh_addralign: 1,
                sh_entsize: 0,
            });
        }
        writer.write_strtab_section_header();
        // Symbol 0 is the only local one.
        writer.write_symtab_section_header(1);
        writer.write_shstrtab_section_header();
        Ok(())
    }
}

impl NewFileSymbol<'_> {
    /// The number of its section header; they count from 1.
    fn index(&self) -> Option<SectionIndex> {
        self.section.map(|index| SectionIndex(index as u32 + 1))
    }
}

/// Where everything is in the file.
struct Places {
    /// The sections' offsets and names.
    offsets: Vec<u64>,
    names: Vec<StringId>,
    /// The symbols' names.
    symbols: Vec<StringId>,
}

#[cfg(test)]
mod tests;
