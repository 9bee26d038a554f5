//! Lays out a relocatable object (`.o`, `.ko`), so that its tables can be read as those of a
//! program: every section in memory gets an address of its own, and the relocations are applied.
//!
//! Sources: System V gABI, "Relocation"; x86-64 psABI, "Relocation Types". Not here: resolving
//! symbols of other objects. They count as 0 in tables, and code that refers to them is unchanged.

use crate::file::{Area, SectionRange};
use crate::pointers::POINTERS_MAX;
use object::SectionIndex;
use object::elf;
use object::endian::LittleEndian as LE;
use object::read::ReadRef as _;
use object::read::elf::{
    CompressionHeader as _, FileHeader as _, Rela as _, SectionHeader as _, SectionTable, Sym as _,
    SymbolTable,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use unwind_sim_unwind::elf::{Compression, symbol_rank, unpack};
use unwind_sim_unwind::image::{Bytes, ImageParts, Owner, Section, SectionKind, Symbol};

/// The address (svma) of the first section. Not 0, so that nothing is mistaken for "no address".
const FIRST_ADDRESS: u64 = 0x1000;
/// The smallest alignment of a section, bytes: two functions are never adjacent by accident.
const ALIGN_MIN: u64 = 16;
/// The largest alignment that is honoured, bytes.
const ALIGN_MAX: u64 = 1 << 21;
/// The length of the zero that ends `.eh_frame`, bytes.
const TERMINATOR_SIZE: u64 = 4;
/// The total size of sections without bytes in the file, bytes.
const SIZE_MAX: u64 = 1 << 40;
/// The maximum number of words filled with addresses of other objects; the largest kernel modules have
/// 60,000.
const IMPORTS_MAX: usize = 1 << 22;
/// The maximum length of the name of a symbol of another object, bytes.
const IMPORT_NAME_LEN_MAX: usize = 256;
/// The maximum length of all symbol names, as a multiple of the file's length: names may share
/// their bytes.
const NAME_SHARING_MAX: usize = 16;

/// The size of all sections with debugging information together, bytes.
const DEBUG_BYTES_MAX: u64 = 1 << 28;

/// What the names of the sections begin with that assembly and compilers fill for objtool.
const NOTES: &str = ".discard.";

/// What is wrong with an object.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{section} at offset {offset:#x}: {what}")]
pub struct ObjectError {
    /// What is wrong.
    pub what: &'static str,
    /// The section that is wrong.
    pub section: String,
    /// Offset in the file, bytes.
    pub offset: u64,
}

/// An object with addresses.
#[derive(Debug, Default)]
pub(crate) struct Object {
    /// The parts of its image.
    pub(crate) parts: ImageParts,
    /// The contents of its sections in memory, with relocations applied.
    pub(crate) areas: Vec<Area>,
    /// Its sections with code, by address.
    pub(crate) code: Vec<SectionRange>,
    /// All its sections in memory, by address.
    pub(crate) sections: Vec<SectionRange>,
    /// Where each of them is in the file, bytes.
    pub(crate) offsets: Vec<u64>,
    /// The words of code that a linker fills with the address of a symbol of another object: where
    /// (svma), and its name.
    pub(crate) imports: Vec<(u64, String)>,
    /// The words of data that a linker fills with addresses of this object's code: where, and with
    /// what (svma).
    pub(crate) pointers: Vec<(u64, u64)>,
    /// The words of `.discard` sections, and what they refer to (svma).
    pub(crate) notes: Vec<(u64, u64)>,
    /// Sized symbols without a type in sections with code.
    pub(crate) untyped: Vec<Range<u64>>,
}

type Header = elf::FileHeader64<LE>;
type SectionHeader = elf::SectionHeader64<LE>;

/// Lays out the object in `owner`.
pub(crate) fn read(name: &str, owner: &Owner) -> Result<Object, ObjectError> {
    // The layout is filled in two steps, and then taken apart.
    let mut layout = Layout::new(owner)?;

    // Relocations are computed from the addresses of all sections.
    layout.place()?;
    layout.relocate()?;

    // What others search by address is put in order.
    let mut object = layout.object();
    object.parts.name = name.to_owned();
    object.parts.symbols = layout.code_symbols();
    object.imports = layout.imports;
    object.imports.sort_unstable();
    object.pointers = layout.pointers;
    object.pointers.sort_unstable();
    object.notes = layout.notes;
    object.notes.sort_unstable();
    object.untyped = layout.untyped;
    object.untyped.sort_by_key(|range| (range.start, range.end));
    Ok(object)
}

/// The sections of an object with debugging information, by name, as far as `wanted` says so: unpacked,
/// and with the addresses that [`read`] gives to its code.
///
/// # Errors
/// If the object is damaged where that matters.
pub(crate) fn debug_sections(
    owner: &Owner,
    wanted: impl Fn(&str) -> bool,
) -> Result<BTreeMap<String, Vec<u8>>, ObjectError> {
    let mut layout = Layout::new(owner)?;
    layout.place()?;

    let mut names = BTreeMap::new();
    let mut left = DEBUG_BYTES_MAX;
    for (index, section) in layout.sections.enumerate() {
        let name = layout.name(section);
        if wanted(&name) && !layout.has_address(section) {
            let bytes = layout.unpacked(section, left)?;
            left -= bytes.len() as u64;

            // Several may have one name, such as those of types. They are put one behind the other, as a
            // linker does.
            let place: &mut u64 = names.entry(name).or_default();
            layout.addresses.insert(index.0, *place);
            *place += bytes.len() as u64;
            layout.contents.insert(index.0, bytes);
        }
    }
    let wanted: BTreeSet<usize> = layout.contents.keys().copied().collect();
    layout.relocate_only(|target| wanted.contains(&target.0))?;

    let mut all: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for (index, bytes) in std::mem::take(&mut layout.contents) {
        if let Ok(section) = layout.sections.section(SectionIndex(index)) {
            all.entry(layout.name(section)).or_default().extend(bytes);
        }
    }
    Ok(all)
}

struct Layout<'a> {
    owner: &'a Owner,
    data: &'a [u8],
    sections: SectionTable<'a, Header>,
    symbols: SymbolTable<'a, Header>,
    /// The address of each section that has one.
    addresses: BTreeMap<usize, u64>,
    /// The bytes of sections that were relocated.
    contents: BTreeMap<usize, Vec<u8>>,
    imports: Vec<(u64, String)>,
    pointers: Vec<(u64, u64)>,
    notes: Vec<(u64, u64)>,
    untyped: Vec<Range<u64>>,
}

impl<'a> Layout<'a> {
    /// Nothing is laid out yet.
    fn new(owner: &'a Owner) -> Result<Layout<'a>, ObjectError> {
        let data: &[u8] = (**owner).as_ref();
        let wrong = |what, section: &str, offset| ObjectError {
            what,
            section: section.to_owned(),
            offset,
        };

        // Headers are checked here, so that what is laid out below lies within the file.
        let header = Header::parse(data).map_err(|_| wrong("cut short", "file header", 0))?;
        let offset = header.e_shoff(LE);
        let sections = header
            .sections(LE, data)
            .map_err(|_| wrong("not within the file", "section headers", offset))?;
        let symbols = sections
            .symbols(LE, data, elf::SHT_SYMTAB)
            .map_err(|_| wrong("unreadable", ".symtab", offset))?;

        Ok(Layout {
            owner,
            data,
            sections,
            symbols,
            addresses: BTreeMap::new(),
            contents: BTreeMap::new(),
            imports: Vec::new(),
            pointers: Vec::new(),
            notes: Vec::new(),
            untyped: Vec::new(),
        })
    }

    fn name(&self, section: &SectionHeader) -> String {
        let name = self.sections.section_name(LE, section);
        String::from_utf8_lossy(name.unwrap_or_default()).into_owned()
    }

    fn wrong(&self, what: &'static str, section: &SectionHeader) -> ObjectError {
        ObjectError {
            what,
            section: self.name(section),
            offset: section.sh_offset(LE),
        }
    }

    /// Whether the rows of `.eh_frame` say already how far away their functions are, since nothing
    /// relocates them: then the object is used as it lies in the file. Code that Cranelift compiled ahead
    /// (wasmtime's `.cwasm`) is such an object, with sections in memory at their offsets.
    fn is_final(&self) -> bool {
        let rows = self.sections.enumerate().find(|(_, section)| {
            section.sh_size(LE) > TERMINATOR_SIZE
                && kind(&self.name(section)) == Some(SectionKind::EhFrame)
        });
        let is_relocated = |rows: SectionIndex| {
            let mut all = self.sections.iter();
            all.any(|s| s.sh_type(LE) == elf::SHT_RELA && s.info_link(LE) == rows)
        };
        rows.is_some_and(|(rows, _)| !is_relocated(rows)) && self.is_in_order()
    }

    /// Whether the sections in memory lie one behind the other in the file, with all their bytes, so that
    /// their offsets can be addresses.
    fn is_in_order(&self) -> bool {
        let mut all = self.sections.iter().filter(|s| self.has_address(s));
        let mut end = 0;
        all.all(|section| {
            let start = section.sh_offset(LE);
            let is_behind = start >= end && section.sh_type(LE) != elf::SHT_NOBITS;
            end = start.saturating_add(section.sh_size(LE));
            is_behind
        })
    }

    /// Gives every section in memory an address, in the order of the file. `.debug_frame` is not
    /// in memory and gets 0.
    fn place(&mut self) -> Result<(), ObjectError> {
        let is_final = self.is_final();
        let mut next = FIRST_ADDRESS;
        for (index, section) in self.sections.enumerate() {
            if kind(&self.name(section)) == Some(SectionKind::DebugFrame) {
                self.addresses.insert(index.0, 0);
            }
            if !self.has_address(section) {
                continue;
            }

            let align = section.sh_addralign(LE).clamp(ALIGN_MIN, ALIGN_MAX);
            let align = align.checked_next_power_of_two().unwrap_or(ALIGN_MIN);
            let size = section.sh_size(LE);
            let address = if is_final {
                FIRST_ADDRESS.saturating_add(section.sh_offset(LE))
            } else {
                next.next_multiple_of(align)
            };

            let in_file = section.data(LE, self.data).is_ok();
            // The gap tells the end of a section from the start of the next.
            let end = address
                .checked_add(size)
                .and_then(|end| end.checked_add(1))
                .filter(|&end| in_file && end < SIZE_MAX)
                .ok_or_else(|| self.wrong("not within the file", section))?;
            next = end;
            self.addresses.insert(index.0, address);
        }
        Ok(())
    }

    /// Whether the section is in memory, or is one of the notes on the code that assembly leaves for
    /// objtool, most of which say nothing of being in memory.
    fn has_address(&self, section: &SectionHeader) -> bool {
        section.sh_flags(LE).0 & elf::SHF_ALLOC.0 != 0
            || section.sh_type(LE) == elf::SHT_PROGBITS && self.name(section).starts_with(NOTES)
    }

    fn relocate(&mut self) -> Result<(), ObjectError> {
        self.relocate_only(|_| true)
    }

    /// Applies the relocations of the sections for which `wanted` says so.
    fn relocate_only(&mut self, wanted: impl Fn(SectionIndex) -> bool) -> Result<(), ObjectError> {
        for (_, section) in self.sections.enumerate() {
            if section.sh_type(LE) != elf::SHT_RELA {
                continue;
            }

            // `sh_info` of a section of relocations is the section that they apply to.
            let target = section.info_link(LE);
            let Some(&address) = self.addresses.get(&target.0).filter(|_| wanted(target)) else {
                continue;
            };

            let relocations: &[elf::Rela64<LE>] = section
                .data_as_array(LE, self.data)
                .map_err(|_| self.wrong("not within the file", section))?;
            // Several sections of relocations may apply to one, each to what the last has left.
            let mut bytes = match self.contents.remove(&target.0) {
                Some(bytes) => bytes,
                None => self.original(target).to_vec(),
            };

            let from_section = is_relative_to_section(&bytes);
            let is_sframe = self.sections.section(target).map(|s| self.name(s));
            let is_sframe = is_sframe.is_ok_and(|name| name == SectionKind::Sframe.as_str());
            let is_code = self.is_code(target);
            let is_data = self.is_data(target);
            let is_note = self
                .sections
                .section(target)
                .is_ok_and(|s| self.name(s).starts_with(NOTES));

            for relocation in relocations {
                if is_note {
                    self.note(relocation, address.wrapping_add(relocation.r_offset(LE)));
                }
                if is_code {
                    self.import(relocation, address.wrapping_add(relocation.r_offset(LE)));
                }
                if is_data {
                    self.pointer(relocation, address.wrapping_add(relocation.r_offset(LE)));
                }
                // Where starts are relative to the section, the assembler's relocations count from
                // it, not from the field.
                let place = if is_sframe && from_section {
                    address
                } else {
                    address.wrapping_add(relocation.r_offset(LE))
                };
                self.apply(relocation, place, &mut bytes);
            }
            self.contents.insert(target.0, bytes);
        }
        Ok(())
    }

    /// Remembers what the word of a note at `place` refers to, whether by address or distance.
    fn note(&mut self, relocation: &elf::Rela64<LE>, place: u64) {
        let symbol = relocation.symbol(LE, false);
        if let Some(address) = symbol.and_then(|index| self.symbol_address(index))
            && self.notes.len() < IMPORTS_MAX
        {
            let addend = relocation.r_addend(LE).cast_unsigned();
            self.notes.push((place, address.wrapping_add(addend)));
        }
    }

    /// Remembers the name if the relocation of the word at `place` is for a symbol of another object.
    fn import(&mut self, relocation: &elf::Rela64<LE>, place: u64) {
        let symbol = relocation.symbol(LE, false);
        let symbol = symbol.and_then(|index| self.symbols.symbol(index).ok());
        let Some(symbol) = symbol.filter(|s| s.st_shndx(LE) == elf::SHN_UNDEF) else {
            return;
        };
        let name = symbol.name(LE, self.symbols.strings()).unwrap_or_default();
        if name.is_empty() || name.len() > IMPORT_NAME_LEN_MAX || self.imports.len() >= IMPORTS_MAX
        {
            return;
        }
        let name = String::from_utf8_lossy(name).into_owned();
        self.imports.push((place, name));
    }

    fn is_code(&self, section: SectionIndex) -> bool {
        let section = self.sections.section(section);
        section.is_ok_and(|s| s.sh_flags(LE).0 & elf::SHF_EXECINSTR.0 != 0)
    }

    /// Whether a section holds the program's own data, and nothing that a linker or a kernel reads
    /// (`.eh_frame`, `__mcount_loc`).
    fn is_data(&self, section: SectionIndex) -> bool {
        let Ok(header) = self.sections.section(section) else {
            return false;
        };
        let name = self.name(header);
        header.sh_flags(LE).0 & (elf::SHF_ALLOC.0 | elf::SHF_EXECINSTR.0) == elf::SHF_ALLOC.0
            && kind(&name).is_none()
            && !name.starts_with("__")
    }

    /// Remembers the word at `place` if its relocation makes it an address of code.
    fn pointer(&mut self, relocation: &elf::Rela64<LE>, place: u64) {
        let Some(index) = relocation.symbol(LE, false) else {
            return;
        };
        if relocation.r_type(LE, false) != elf::R_X86_64_64 || self.pointers.len() >= POINTERS_MAX {
            return;
        }
        let symbol = self.symbols.symbol(index).ok();
        let section = symbol.and_then(|s| self.symbols.symbol_section(LE, s, index).ok().flatten());
        if section.is_some_and(|s| self.is_code(s))
            && let Some(address) = self.symbol_address(index)
        {
            let addend = relocation.r_addend(LE);
            self.pointers
                .push((place, address.wrapping_add_signed(addend)));
        }
    }

    fn original(&self, section: SectionIndex) -> &'a [u8] {
        let section = self.sections.section(section);
        let bytes = section.ok().and_then(|s| s.data(LE, self.data).ok());
        bytes.unwrap_or_default()
    }

    /// The bytes of a section, unpacked if it is compressed: its relocations are for those.
    /// It is an error if they are more than `bytes_max`.
    fn unpacked(&self, section: &SectionHeader, bytes_max: u64) -> Result<Vec<u8>, ObjectError> {
        let outside = || self.wrong("not within the file", section);
        let Some((header, start, len)) =
            section.compression(LE, self.data).map_err(|_| outside())?
        else {
            let bytes = section.data(LE, self.data).map_err(|_| outside())?;
            if bytes.len() as u64 > bytes_max {
                return Err(self.wrong("too long", section));
            }
            return Ok(bytes.to_vec());
        };
        let compression = match header.ch_type(LE) {
            elf::ELFCOMPRESS_ZLIB => Compression::Zlib,
            elf::ELFCOMPRESS_ZSTD => Compression::Zstd,
            _ => return Err(self.wrong("compressed in an unknown way", section)),
        };
        let packed = self
            .data
            .read_bytes_at(start, len)
            .map_err(|()| outside())?;
        let unpacked = unpack::unpack_at_most(compression, packed, bytes_max);
        unpacked.map_err(|_| self.wrong("cannot be unpacked", section))
    }

    /// Applies one relocation to the word at address `place`. Kinds that neither tables nor direct
    /// branches have are left alone.
    fn apply(&self, relocation: &elf::Rela64<LE>, place: u64, bytes: &mut [u8]) {
        let offset = relocation.r_offset(LE);
        let symbol = relocation.symbol(LE, false);
        let symbol = symbol.map(|index| self.symbol_address(index));
        let value = symbol
            .unwrap_or(Some(0))
            .unwrap_or(0)
            .wrapping_add(relocation.r_addend(LE).cast_unsigned());
        let kind = relocation.r_type(LE, false);
        let (value, len) = match kind {
            elf::R_X86_64_64 => (value, 8),
            elf::R_X86_64_PC64 => (value.wrapping_sub(place), 8),
            elf::R_X86_64_32 | elf::R_X86_64_32S => (value, 4),
            elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 => (value.wrapping_sub(place), 4),
            _ => return,
        };
        let start = usize::try_from(offset).ok();
        let word = start.and_then(|start| bytes.get_mut(start..start.checked_add(len)?));
        if let Some(word) = word {
            word.copy_from_slice(&value.to_le_bytes()[..len]);
        }
    }

    /// The address of a symbol of this object.
    fn symbol_address(&self, index: object::SymbolIndex) -> Option<u64> {
        let symbol = self.symbols.symbol(index).ok()?;
        if symbol.st_shndx(LE) == elf::SHN_ABS {
            return Some(symbol.st_value(LE));
        }
        let section = self.symbols.symbol_section(LE, symbol, index).ok()??;
        let address = self.addresses.get(&section.0)?;
        Some(address.wrapping_add(symbol.st_value(LE)))
    }

    fn object(&mut self) -> Object {
        let mut out = Object::default();
        for (index, section) in self.sections.enumerate() {
            let Some(&address) = self.addresses.get(&index.0) else {
                continue;
            };

            let name = self.name(section);
            let range = address..address.saturating_add(section.sh_size(LE));

            // The bytes are those with relocations applied, where there were any.
            let bytes = self.bytes(index, section);

            let flags = section.sh_flags(LE).0;
            let is_code = flags & elf::SHF_EXECINSTR.0 != 0;
            let kind = kind(&name).or(is_code.then_some(SectionKind::Text));

            if let Some(kind) = kind {
                let data = bytes.clone();
                out.parts.sections.push(Section {
                    kind,
                    address,
                    data,
                });
            }

            // `.debug_frame` ends here: it is a table, but no memory of the program.
            if !self.has_address(section) {
                continue;
            }
            let code = SectionRange {
                name,
                range: range.clone(),
            };

            // A table may name a place in an empty section.
            out.offsets.push(section.sh_offset(LE));
            if range.is_empty() {
                out.sections.push(code);
                continue;
            }

            // Code is what may be followed; other sections are only memory.
            if is_code {
                out.parts.text.push(range);
                out.code.push(code.clone());
            }
            out.sections.push(code);
            out.areas.push(Area {
                address,
                bytes,
                is_writable: flags & elf::SHF_WRITE.0 != 0,
            });
        }
        out
    }

    fn bytes(&mut self, index: SectionIndex, section: &SectionHeader) -> Bytes {
        if let Some(bytes) = self.contents.remove(&index.0) {
            return Bytes::from_vec(bytes);
        }
        let range = section.file_range(LE).and_then(|(start, size)| {
            let start = usize::try_from(start).ok()?;
            let end = start.checked_add(usize::try_from(size).ok()?)?;
            Bytes::new(self.owner.clone(), start..end)
        });
        range.unwrap_or_else(|| Bytes::from_vec(Vec::new()))
    }

    /// The functions, and the labels without a type in sections with code.
    fn code_symbols(&mut self) -> Vec<Symbol> {
        let mut left = self.data.len().saturating_mul(NAME_SHARING_MAX);
        let mut out = Vec::new();

        for (index, symbol) in self.symbols.enumerate() {
            let kind = symbol.st_type();
            if kind != elf::STT_FUNC && kind != elf::STT_NOTYPE && kind != elf::STT_GNU_IFUNC {
                continue;
            }

            // Undefined and absolute symbols have no section.
            // Only symbols in sections with code are of functions or labels.
            let section = self.symbols.symbol_section(LE, symbol, index);
            let header = section
                .ok()
                .flatten()
                .and_then(|s| self.sections.section(s).ok());
            let is_code = |h: &SectionHeader| h.sh_flags(LE).0 & elf::SHF_EXECINSTR.0 != 0;
            if !header.is_some_and(is_code) {
                continue;
            }

            let name = self.symbols.symbol_name(LE, symbol).unwrap_or_default();
            let Some(address) = self.symbol_address(index).filter(|_| !name.is_empty()) else {
                continue;
            };
            // Names may share bytes, so that together they can be many times as long as the file.
            let Some(rest) = left.checked_sub(name.len()) else {
                break;
            };
            left = rest;

            // Assembly without a type is told apart: it may not be a function.
            if kind == elf::STT_NOTYPE && symbol.st_size(LE) > 0 {
                let end = address.saturating_add(symbol.st_size(LE));
                self.untyped.push(address..end);
            }

            let symbol_of = Symbol {
                address,
                size: symbol.st_size(LE),
                name: String::from_utf8_lossy(name).into_owned(),
            };
            out.push((symbol_rank(symbol), symbol_of));
        }

        // Several symbols may be at one address; the best name comes first.
        out.sort_by(|(a, one), (b, other)| {
            (one.address, a, &one.name).cmp(&(other.address, b, &other.name))
        });
        out.into_iter().map(|(_, symbol)| symbol).collect()
    }
}

/// Whether the function starts in these bytes of a `.sframe` section are relative to the section.
/// The relocations of such an object say "relative to the field" all the same; a linker knows
/// better (binutils 2.40 to 2.44: V1, and V2 without `SFRAME_F_FDE_FUNC_START_PCREL`).
fn is_relative_to_section(bytes: &[u8]) -> bool {
    let flags = bytes.get(3).copied().unwrap_or(0);
    flags & unwind_sim_unwind::sframe::FLAG_FUNC_START_PCREL == 0
        && matches!(bytes.get(2), Some(1 | 2))
}

/// The kind of table with this section name.
fn kind(name: &str) -> Option<SectionKind> {
    const TABLES: [SectionKind; 6] = [
        SectionKind::EhFrame,
        SectionKind::DebugFrame,
        SectionKind::Sframe,
        SectionKind::OrcUnwind,
        SectionKind::OrcUnwindIp,
        SectionKind::OrcHeader,
    ];
    TABLES.into_iter().find(|kind| kind.as_str() == name)
}
