//! The ELF side of an object: sections with their place in the file, symbols, relocations.

use super::{Elf, Relocation, Section, Symbol};
use crate::bpf::error::{ObjectError, ObjectErrorKind as Kind};
use object::LittleEndian as LE;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader as _, Rel as _, SectionHeader as _, Sym as _};

/// An error of the ELF reader. It has no offset, so the part's offset is used.
fn elf_error(error: object::Error, offset: u64, part: &str) -> ObjectError {
    // The reader's messages are fixed texts.
    let what = match error.to_string().as_str() {
        "Invalid ELF section name" => "a section's name lies outside the file",
        "Invalid ELF symbol name" => "a symbol's name lies outside the file",
        "Invalid ELF header size or alignment" => "too short for an ELF header",
        "Unsupported ELF header" => "not a little-endian ELF64 file",
        _ => "it lies outside the file, or its header is wrong",
    };
    ObjectError::new(Kind::Elf(what), offset, part)
}

impl<'a> Elf<'a> {
    pub(super) fn parse(data: &'a [u8]) -> Result<Self, ObjectError> {
        let at_header = |error| elf_error(error, 0, "ELF header");
        let header = FileHeader64::<LE>::parse(data).map_err(at_header)?;
        let endian = header.endian().map_err(at_header)?;
        let wrong = |kind, offset| Err(ObjectError::new(kind, offset, "ELF header"));
        // A file for another machine is a mistake of the user, and worth its own message.
        if header.e_machine.get(endian) != elf::EM_BPF {
            return wrong(Kind::Machine(header.e_machine.get(endian).0), 18);
        }
        if header.e_type.get(endian) != elf::ET_REL {
            return wrong(Kind::Type(header.e_type.get(endian).0), 16);
        }
        let table_offset = header.e_shoff.get(endian);
        let at_table = |error| elf_error(error, table_offset, "section table");
        let table = header.sections(endian, data).map_err(at_table)?;

        let mut sections = Vec::with_capacity(table.len());
        for (index, section) in table.enumerate() {
            let offset = section.sh_offset(endian);
            let name = table.section_name(endian, section).map_err(at_table)?;
            let name = str::from_utf8(name).unwrap_or("(not UTF-8)");
            let bytes = section
                .data(endian, data)
                .map_err(|error| elf_error(error, offset, name))?;
            sections.push(Section {
                index: index.0,
                name,
                bytes,
                size: section.sh_size(endian),
                offset,
                is_code: section.sh_type(endian) == elf::SHT_PROGBITS
                    && section.sh_flags(endian).0 & elf::SHF_EXECINSTR.0 != 0
                    && !bytes.is_empty(),
            });
        }

        let at_symbols = |error| elf_error(error, table_offset, "symbol table");

        // By number, since relocations name symbols by their position.
        let symbol_table = table
            .symbols(endian, data, elf::SHT_SYMTAB)
            .map_err(at_symbols)?;
        let mut symbols = Vec::with_capacity(symbol_table.len());
        for symbol in symbol_table.iter() {
            let section = usize::from(symbol.st_shndx(endian).0);
            let own = symbol_table
                .symbol_name(endian, symbol)
                .map_err(at_symbols)?;
            // Symbols of sections have no name of their own.
            let name = match (own, sections.get(section)) {
                ([], Some(section)) => section.name,
                _ => str::from_utf8(own).unwrap_or("(not UTF-8)"),
            };
            symbols.push(Symbol {
                name,
                section,
                value: symbol.st_value(endian),
                size: symbol.st_size(endian),
                is_function: symbol.st_type() == elf::STT_FUNC,
                is_object: symbol.st_type() == elf::STT_OBJECT,
            });
        }

        let mut relocations = Vec::new();
        for (section, own) in table.iter().zip(&sections) {
            let target = section.sh_info(endian) as usize;
            // Relocations of other sections, such as debug information, are of no use here.
            let is_wanted = sections
                .get(target)
                .is_some_and(|section| section.is_code || section.name == ".maps");
            if section.sh_type(endian) != elf::SHT_REL || !is_wanted {
                continue;
            }
            let found = section
                .rel(endian, data)
                .map_err(|error| elf_error(error, own.offset, own.name))?;
            for (index, rel) in found.map_or(&[][..], |(rels, _)| rels).iter().enumerate() {
                // An `Elf64_Rel` has 16 bytes.
                let offset = own.offset.wrapping_add(16 * index as u64);
                let place = rel.r_offset(endian);
                // Instructions, and pointers in definitions of maps, have 8 bytes.
                if place % 8 != 0 {
                    return Err(ObjectError::new(Kind::RelocationTarget, offset, own.name));
                }
                relocations.push(Relocation {
                    section: target,
                    insn: place / 8,
                    symbol: rel.r_sym(endian) as usize,
                    kind: rel.r_type(endian).0,
                    offset,
                });
            }
        }

        // Sorted, so that the relocation of an instruction is found by a binary search.
        relocations.sort_by_key(|relocation| (relocation.section, relocation.insn));
        Ok(Self {
            sections,
            symbols,
            relocations,
        })
    }
}
