//! Loads the symbols of ELF files as perf does (`tools/perf/util/symbol-elf.c`, Linux 7.2):
//! addresses are file offsets; `.symtab` is read first, then `.dynsym`; objects and labels are
//! included.

use super::helper::{Compression, Helper, Owner};
use super::tree::{Name, NameRef, NewSymbol, Tree};
use object::Endianness;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable, Sym, SymbolTable};
use object::read::{SectionIndex, SymbolIndex};
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of symbols loaded from one table.
const SYMBOLS_MAX: usize = 8 << 20;

/// Maximum bytes of names that are stored, per byte of the files: displayed names, and those of PLT
/// stubs without a symbol.
const NAMES_PER_BYTE: usize = 4;

/// The parts of an ELF file that symbols need.
pub(super) struct Parts<'d, E: FileHeader> {
    owner: &'d Owner,
    pub(super) data: &'d [u8],
    pub(super) endian: E::Endian,
    segments: &'d [E::ProgramHeader],
    pub(super) sections: SectionTable<'d, E>,
}

impl<'d, E: FileHeader<Endian = Endianness>> Parts<'d, E> {
    pub(super) fn parse(owner: &'d Owner) -> Option<Self> {
        let data = (**owner).as_ref();
        let header = E::parse(data).ok()?;
        let endian = header.endian().ok()?;
        Some(Self {
            owner,
            data,
            endian,
            segments: header.program_headers(endian, data).ok()?,
            sections: header.sections(endian, data).ok()?,
        })
    }

    /// The section with this name.
    pub(super) fn section(&self, name: &[u8]) -> Option<(SectionIndex, &'d E::SectionHeader)> {
        self.sections.section_by_name(self.endian, name)
    }

    /// The symbol table in the section with this name and type.
    pub(super) fn symbols(
        &self,
        name: &[u8],
        kind: elf::SectionType,
    ) -> Option<SymbolTable<'d, E>> {
        let (index, section) = self.section(name)?;
        if section.sh_type(self.endian) != kind {
            return None;
        }
        SymbolTable::parse(self.endian, self.data, &self.sections, index, section).ok()
    }

    /// Whether addresses have 64 bits.
    pub(super) fn is_64(&self) -> bool {
        self.data.get(4) == Some(&2)
    }

    /// Whether the file has source lines.
    pub(super) fn has_lines(&self) -> bool {
        let lines = self.section(b".debug_line");
        lines.is_some_and(|(_, section)| section.sh_type(self.endian) == elf::SHT_PROGBITS)
    }

    /// Whether the file has a symbol table.
    pub(super) fn has_symtab(&self) -> bool {
        let symtab = self.section(b".symtab");
        symtab.is_some_and(|(_, section)| section.sh_type(self.endian) == elf::SHT_SYMTAB)
    }

    /// Whether this file can have been mapped: debug files have no dynamic symbols.
    pub(super) fn is_runtime(&self) -> bool {
        let dynsym = self.section(b".dynsym");
        dynsym.is_some_and(|(_, section)| section.sh_type(self.endian) == elf::SHT_DYNSYM)
    }

    /// The build id.
    pub(super) fn build_id(&self) -> Option<&'d [u8]> {
        let names: [&[u8]; 3] = [b".note.gnu.build-id", b".notes", b".note"];
        let (_, section) = names.iter().find_map(|name| self.section(name))?;
        let mut notes = section.notes(self.endian, self.data).ok()??;
        while let Ok(Some(note)) = notes.next() {
            if note.name() == b"GNU" && note.n_type(self.endian) == elf::NT_GNU_BUILD_ID {
                return Some(note.desc());
            }
        }
        None
    }

    /// The file name in `.gnu_debuglink`.
    pub(super) fn debug_link(&self) -> Option<&'d [u8]> {
        let (_, section) = self.section(b".gnu_debuglink")?;
        let bytes = section.data(self.endian, self.data).ok()?;
        bytes.split(|&byte| byte == 0).next()
    }

    /// The unpacked `.gnu_debugdata`: an ELF file with the symbols that are not in `.dynsym`.
    pub(super) fn debug_data(&self, helper: &'static dyn Helper) -> Option<Owner> {
        let (_, section) = self.section(b".gnu_debugdata")?;
        let packed = section.data(self.endian, self.data).ok()?;
        Some(Arc::new(helper.unpack(Compression::Xz, packed)?))
    }

    /// The file offsets of code, and what to add to an offset for its address.
    pub(super) fn code(&self) -> Vec<(Range<u64>, u64)> {
        let endian = self.endian;
        let is_code = |segment: &&E::ProgramHeader| {
            segment.p_type(endian) == elf::PT_LOAD && segment.p_flags(endian).contains(elf::PF_X)
        };
        let place = |segment: &E::ProgramHeader| {
            let start: u64 = segment.p_offset(endian).into();
            let size: u64 = segment.p_filesz(endian).into();
            let address: u64 = segment.p_vaddr(endian).into();
            (
                start..start.saturating_add(size),
                address.wrapping_sub(start),
            )
        };
        self.segments.iter().filter(is_code).map(place).collect()
    }

    /// The file offset of an address, by the program headers; `None` if no segment contains it.
    pub(super) fn file_offset(&self, address: u64) -> Option<u64> {
        let endian = self.endian;
        let segment = self.segments.iter().find(|segment| {
            let start: u64 = segment.p_vaddr(endian).into();
            let memory: u64 = segment.p_memsz(endian).into();
            let size = memory.max(segment.p_filesz(endian).into());
            segment.p_type(endian) == elf::PT_LOAD
                && (start..start.saturating_add(size)).contains(&address)
        })?;
        let start: u64 = segment.p_vaddr(endian).into();
        let offset: u64 = segment.p_offset(endian).into();
        Some(address.wrapping_sub(start).wrapping_add(offset))
    }
}

/// Loads the symbols of `symbols` into a tree. Addresses are file offsets in `runtime`, the mapped
/// file. If `symbols` is its `.gnu_debugdata`, its own dynamic symbols are loaded too.
pub(super) fn load<E: FileHeader<Endian = Endianness>>(
    symbols: &Parts<'_, E>,
    runtime: &Parts<'_, E>,
    is_debug_data: bool,
    helper: &'static dyn Helper,
) -> Tree {
    let size = symbols.data.len().saturating_add(runtime.data.len());
    let mut tree = Tree::with_room(size.saturating_mul(NAMES_PER_BYTE), helper);

    let symtab = (symbols, &b".symtab"[..], elf::SHT_SYMTAB);
    let dynsym = |parts| (parts, &b".dynsym"[..], elf::SHT_DYNSYM);
    let own = is_debug_data.then(|| dynsym(runtime));

    for (parts, name, kind) in [symtab, dynsym(symbols)].into_iter().chain(own) {
        let Some(table) = NamedTable::of(parts, name, kind, &mut tree) else {
            continue;
        };

        tree.reserve(table.symbols.len().min(SYMBOLS_MAX));
        for (index, symbol) in table.symbols.enumerate().take(SYMBOLS_MAX) {
            if let Some(entry) = entry(parts, runtime, &table, index, symbol) {
                tree.insert(entry);
            }
        }

        // After each table, as at the end of `dso__load_sym_internal`
        // (`tools/perf/util/symbol-elf.c`).
        tree.fix();
    }

    // perf names stubs only of files that have symbols (`dso__load` in `tools/perf/util/symbol.c`).
    if !tree.is_empty() {
        super::plt::load(runtime, &mut tree);
    }

    tree.settle();
    tree
}

/// A symbol table whose file is a source of names.
pub(super) struct NamedTable<'d, E: FileHeader> {
    pub(super) symbols: SymbolTable<'d, E>,
    source: u8,
    /// Offset of the strings in the file.
    strings: u64,
    /// Offsets in the strings up to the last terminator, at which names can start.
    starts: Range<u32>,
}

impl<'d, E: FileHeader<Endian = Endianness>> NamedTable<'d, E> {
    /// The symbol table of a file in the section with this name and type.
    pub(super) fn of(
        parts: &Parts<'d, E>,
        name: &[u8],
        kind: elf::SectionType,
        tree: &mut Tree,
    ) -> Option<Self> {
        let symbols = parts.symbols(name, kind)?;
        let section = parts.sections.section(symbols.string_section()).ok();
        let strings = section.and_then(|section| section.file_range(parts.endian));
        let (start, size) = strings.unwrap_or((0, 0));
        let bytes = usize::try_from(start).ok().zip(usize::try_from(size).ok());
        let bytes = bytes.and_then(|(start, size)| parts.data.get(start..start.checked_add(size)?));
        let end = bytes.and_then(|bytes| memchr::memrchr(0, bytes));
        Some(Self {
            symbols,
            source: tree.add_source(parts.owner, 0)?,
            strings: start,
            starts: 0..end.map_or(0, |end| u32::try_from(end + 1).unwrap_or(u32::MAX)),
        })
    }

    /// The name of a symbol; `None` if it does not end in the string table.
    fn name(&self, endian: E::Endian, symbol: &E::Sym) -> Option<NameRef> {
        let start = symbol.st_name(endian);
        let offset = self.strings.checked_add(start.into())?;
        self.starts.contains(&start).then_some(NameRef {
            source: self.source,
            offset: u32::try_from(offset).ok()?,
        })
    }

    /// The name of the symbol at an index, unless it is empty.
    pub(super) fn name_at(&self, parts: &Parts<'d, E>, index: usize) -> Option<NameRef> {
        let symbol = self.symbols.symbol(SymbolIndex(index)).ok()?;
        let at = self.name(parts.endian, symbol)?;
        (parts.data.get(at.offset as usize) != Some(&0)).then_some(at)
    }
}

/// The tree entry of a symbol, if perf keeps such symbols.
fn entry<'d, E: FileHeader<Endian = Endianness>>(
    symbols: &Parts<'d, E>,
    runtime: &Parts<'_, E>,
    table: &NamedTable<'d, E>,
    index: SymbolIndex,
    symbol: &E::Sym,
) -> Option<NewSymbol<'static>> {
    let endian = symbols.endian;
    let shndx = symbol.st_shndx(endian);
    if symbol.st_name(endian) == 0 || shndx == elf::SHN_UNDEF {
        return None;
    }
    let kind = symbol.st_type();

    // As perf's `elf_sym__filter` and `elf_sym__is_label`: assembly labels have no type.
    let is_label = match kind {
        elf::STT_FUNC | elf::STT_GNU_IFUNC | elf::STT_OBJECT => false,
        elf::STT_NOTYPE => {
            let hidden = matches!(symbol.st_visibility(), elf::STV_HIDDEN | elf::STV_INTERNAL);
            if shndx == elf::SHN_ABS || hidden {
                return None;
            }
            true
        }
        _ => return None,
    };

    let section = table.symbols.symbol_section(endian, symbol, index);
    let section = section.ok()??;
    let section = symbols.sections.section(section).ok()?;
    let flags = section.sh_flags(endian);
    // What is not loaded has no address in a process.
    if flags.0 & elf::SHF_ALLOC.0 == 0 {
        return None;
    }

    if is_label && !is_text_or_data(symbols.sections.section_name(endian, section).ok()?) {
        return None;
    }

    let address: u64 = symbol.st_value(endian).into();
    // perf looks symbols up by file offset. A debug file's own offsets differ from those of the
    // mapped file, whose segments therefore come first.
    let start = runtime.file_offset(address).unwrap_or_else(|| {
        let base: u64 = section.sh_addr(endian).into();
        let offset: u64 = section.sh_offset(endian).into();
        address.wrapping_sub(base).wrapping_add(offset)
    });

    let size: u64 = symbol.st_size(endian).into();
    Some(NewSymbol {
        start,
        end: start.saturating_add(size),
        binding: symbol.st_bind().0,
        kind: kind.0,
        name: Name::Raw(table.name(endian, symbol)?),
    })
}

/// Whether the section contains code or data, by its name.
fn is_text_or_data(name: &[u8]) -> bool {
    let has = |part: &[u8]| name.windows(4).any(|window| window == part);
    has(b"text") || has(b"data")
}
