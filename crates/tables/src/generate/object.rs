//! ORC sections added to a relocatable object, a kernel module: `.orc_unwind_ip` with its relocations,
//! `.orc_unwind`, `.orc_header`.
//!
//! What is in the file keeps its place. The new contents, the names and the section headers go behind
//! it. A section that the object already has gets the new contents under its old header.
//!
//! Sources: System V gABI, chapter 4; Linux `tools/objtool/orc_gen.c`, `arch/x86/kernel/module.c`.

use crate::file::File;
use crate::write::NewSection;
use object::elf;
use object::endian::LittleEndian as LE;
use object::pod;
use object::read::elf::{FileHeader as _, SectionHeader as _, Sym as _};
use object::{U32, U64};
use std::collections::BTreeMap;

type Header = elf::FileHeader64<LE>;
type SectionHeader = elf::SectionHeader64<LE>;

/// `sh_addralign` of section headers, bytes.
const HEADER_ALIGN: usize = 8;
/// Offsets in the file header, bytes.
const E_SHOFF: usize = 40;
const E_SHNUM: usize = 60;
const SHT_RELA: u32 = 4;
const SHF_ALLOC: u64 = 2;
const SHF_INFO_LINK: u64 = 0x40;
const RELOCATIONS: &str = ".rela.orc_unwind_ip";
const ADDRESSES: &str = ".orc_unwind_ip";

/// Why the object cannot be changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file}: {what}")]
pub struct ObjectWriteError {
    /// The file's name.
    pub file: String,
    /// What is wrong.
    pub what: &'static str,
}

/// The sections that a module has: Linux fills the lookup table only for its own text.
pub(super) fn without_lookup(sections: Vec<NewSection>) -> Vec<NewSection> {
    let mut sections = sections;
    sections.retain(|section| section.name != ".orc_lookup");
    sections
}

/// A section to put at the end.
struct Contents {
    name: &'static str,
    kind: u32,
    flags: u64,
    link: u32,
    info: u32,
    align: u64,
    entry_size: u64,
    bytes: Vec<u8>,
}

/// The object `data`, which was read as `file`, with the ORC sections `new`.
pub(super) fn add_orc(
    file: &File,
    data: &[u8],
    new: &[NewSection],
) -> Result<Vec<u8>, ObjectWriteError> {
    let wrong = |what| ObjectWriteError {
        file: file.name().to_owned(),
        what,
    };
    let mut object = Object::read(data).map_err(wrong)?;

    // Each section is put behind what the object has; its own bytes do not move.
    for section in new {
        let mut bytes = section.bytes.clone();
        let is_addresses = section.name == ADDRESSES;
        let relocations = if is_addresses {
            Some(object.relocations(file, section).map_err(wrong)?)
        } else {
            None
        };
        // With `SHT_RELA` the relocations have the addends, and the words in place do not count.
        if is_addresses {
            bytes.fill(0);
        }

        let index = object.put(Contents {
            name: section.name,
            kind: section.kind,
            flags: SHF_ALLOC,
            link: 0,
            info: 0,
            align: section.align,
            entry_size: 0,
            bytes,
        });
        // gABI: `sh_link` of relocations is their symbol table, `sh_info` the section they apply
        // to.
        if let Some(bytes) = relocations {
            object.put(Contents {
                name: RELOCATIONS,
                kind: SHT_RELA,
                flags: SHF_INFO_LINK,
                link: object.symtab,
                info: index,
                align: 8,
                entry_size: size_of::<elf::Rela64<LE>>() as u64,
                bytes,
            });
        }
    }

    object.finish().map_err(wrong)
}

/// An object being changed.
struct Object {
    bytes: Vec<u8>,
    headers: Vec<SectionHeader>,
    /// Section names, by section.
    section_names: Vec<String>,
    names: Vec<u8>,
    names_index: usize,
    symtab: u32,
    /// For each section (by index): a symbol in it, and the symbol's value.
    symbols: BTreeMap<u32, (u32, u64)>,
}

impl Object {
    fn read(data: &[u8]) -> Result<Object, &'static str> {
        let header = Header::parse(data).map_err(|_| "its file header is cut short")?;
        let table = header
            .sections(LE, data)
            .map_err(|_| "its section headers are not within the file")?;
        // gABI, `e_shnum`: the count is in the first header, and would have to be changed there.
        if header.e_shnum(LE) == 0 {
            return Err("it has too many sections to add one");
        }

        let names_index = usize::from(header.e_shstrndx(LE).0);

        // Headers are copied, since some are changed and others added.
        let headers: Vec<SectionHeader> = table.iter().copied().collect();
        let names = headers.get(names_index).ok_or("it has no section names")?;
        let names = names
            .data(LE, data)
            .map_err(|_| "its section names are not within the file")?;

        let section_names = headers.iter().map(|section| {
            let name = table.section_name(LE, section).unwrap_or_default();
            String::from_utf8_lossy(name).into_owned()
        });

        // Relocations need a symbol of each section that they lead to.
        let symbols = table
            .symbols(LE, data, elf::SHT_SYMTAB)
            .map_err(|_| "its symbol table is not readable")?;
        let symtab = u32::try_from(symbols.section().0).unwrap_or(0);

        let mut by_section = BTreeMap::new();
        for (index, symbol) in symbols.enumerate() {
            let Ok(Some(section)) = symbols.symbol_section(LE, symbol, index) else {
                continue;
            };
            let (Ok(section), Ok(index)) = (u32::try_from(section.0), u32::try_from(index.0))
            else {
                continue;
            };
            // The section's own symbol is preferred: it is local, and its value is the section's
            // start.
            let is_section = symbol.st_type() == elf::STT_SECTION;
            let value = (index, symbol.st_value(LE));
            if is_section {
                by_section.insert(section, value);
            } else {
                by_section.entry(section).or_insert(value);
            }
        }

        Ok(Object {
            section_names: section_names.collect(),
            names: names.to_vec(),
            names_index,
            symtab,
            symbols: by_section,
            bytes: data.to_vec(),
            headers,
        })
    }

    /// The relocations of `.orc_unwind_ip`: each entry's address as a symbol and a distance from it.
    fn relocations(&self, file: &File, section: &NewSection) -> Result<Vec<u8>, &'static str> {
        let mut out = Vec::new();
        for (slot, word) in (0u64..).step_by(4).zip(section.bytes.chunks_exact(4)) {
            let word = word.first_chunk().ok_or("a slot is cut short")?;
            let at = section.address.wrapping_add(slot);
            let address = at.wrapping_add_signed(i32::from_le_bytes(*word).into());
            let (name, offset) = file.place(address).ok_or("an entry is in no section")?;
            let index = self.section_names.iter().position(|n| n == name);
            let index = index.and_then(|index| u32::try_from(index).ok());
            let symbol = index.and_then(|index| self.symbols.get(&index));
            let &(symbol, value) = symbol.ok_or("a section with code has no symbol")?;
            let info = u64::from(symbol) << 32 | u64::from(elf::R_X86_64_PC32.0);
            out.extend(slot.to_le_bytes());
            out.extend(info.to_le_bytes());
            out.extend(offset.wrapping_sub(value).to_le_bytes());
        }
        Ok(out)
    }

    /// Puts the contents at the end. Returns the section's index.
    fn put(&mut self, new: Contents) -> u32 {
        // The bytes before are padded, as the contents have to be aligned.
        let align = usize::try_from(new.align.max(1)).unwrap_or(1);
        self.bytes
            .resize(self.bytes.len().next_multiple_of(align), 0);
        let offset = self.bytes.len() as u64;
        self.bytes.extend(&new.bytes);

        // A section that is there already keeps its index and name.
        let index = match self.section_names.iter().position(|n| n == new.name) {
            Some(index) => index,
            None => {
                let name = u32::try_from(self.names.len()).unwrap_or(0);
                self.names.extend(new.name.as_bytes());
                self.names.push(0);
                self.section_names.push(new.name.to_owned());
                self.headers.push(SectionHeader {
                    sh_name: U32::new(LE, name),
                    ..empty()
                });
                self.headers.len() - 1
            }
        };

        if let Some(header) = self.headers.get_mut(index) {
            *header = SectionHeader {
                // The name is in the table already, of an old section as of a new one.
                sh_name: header.sh_name,
                sh_type: U32::new(LE, elf::SectionType(new.kind)),
                sh_flags: U64::new(LE, elf::SectionFlags(new.flags)),
                sh_addr: U64::new(LE, 0),
                sh_offset: U64::new(LE, offset),
                sh_size: U64::new(LE, new.bytes.len() as u64),
                sh_link: U32::new(LE, new.link),
                sh_info: U32::new(LE, new.info),
                sh_addralign: U64::new(LE, new.align),
                sh_entsize: U64::new(LE, new.entry_size),
            };
        }

        u32::try_from(index).unwrap_or(0)
    }

    fn finish(mut self) -> Result<Vec<u8>, &'static str> {
        let offset = self.bytes.len() as u64;
        self.bytes.extend(&self.names);
        if let Some(header) = self.headers.get_mut(self.names_index) {
            header.sh_offset = U64::new(LE, offset);
            header.sh_size = U64::new(LE, self.names.len() as u64);
        }
        let at = self.bytes.len().next_multiple_of(HEADER_ALIGN);
        self.bytes.resize(at, 0);
        self.bytes.extend(pod::bytes_of_slice(&self.headers));
        let count = u16::try_from(self.headers.len()).ok();
        let count = count.filter(|&count| count < 0xff00);
        let count = count.ok_or("it has too many sections to add one")?;
        for (place, value) in [
            (E_SHOFF, &(at as u64).to_le_bytes()[..]),
            (E_SHNUM, &count.to_le_bytes()[..]),
        ] {
            let field = self.bytes.get_mut(place..place + value.len());
            field
                .ok_or("its file header is cut short")?
                .copy_from_slice(value);
        }
        Ok(self.bytes)
    }
}

fn empty() -> SectionHeader {
    SectionHeader {
        sh_name: U32::new(LE, 0),
        sh_type: U32::new(LE, elf::SectionType(0)),
        sh_flags: U64::new(LE, elf::SectionFlags(0)),
        sh_addr: U64::new(LE, 0),
        sh_offset: U64::new(LE, 0),
        sh_size: U64::new(LE, 0),
        sh_link: U32::new(LE, 0),
        sh_info: U32::new(LE, 0),
        sh_addralign: U64::new(LE, 0),
        sh_entsize: U64::new(LE, 0),
    }
}
