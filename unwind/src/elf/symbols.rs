//! Reads code symbols from `.symtab`, `.dynsym` or the dynamic segment.

use super::{Elf, ElfError, ElfErrorKind, File, string};
use crate::image::Symbol;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use object::elf;
use object::endian::LittleEndian as LE;
use object::read::ReadRef as _;
use object::read::elf::{ProgramHeader as _, SectionHeader as _, Sym as _};

/// How often names may share the bytes of the string table. Without a limit, a few hostile bytes
/// could ask for gigabytes.
const NAME_SHARING_MAX: u64 = 16;
/// The longest name accepted, bytes; C++ has names of some tens of thousands.
const NAME_LEN_MAX: usize = 64 << 10;
/// Total name length that is always allowed, bytes.
const NAME_BYTES_MIN: u64 = 1 << 20;

type Syms<'a> = &'a [elf::Sym64<LE>];

/// Adds all functions and labels in executable memory.
pub(super) fn read(file: &File<'_>, out: &mut Elf) {
    let found = from_section(file, elf::SHT_SYMTAB, out);
    out.has_symtab = found.is_some();
    let found = found
        .filter(|table| !table.symbols.is_empty())
        .or_else(|| from_section(file, elf::SHT_DYNSYM, out))
        .or_else(|| from_dynamic(file));
    if let Some(table) = found {
        take(file, &table, out);
    }
    name_start_files(file, out);
}

/// How names at one address are preferred, the lowest first: global, weak, then local, as gdb and
/// elfutils do. The C library has several for most functions: `raise`, `gsignal` and `__GI_raise`.
/// An indirect function's name is that of what its resolver chooses, not of the resolver.
pub fn symbol_rank(symbol: &elf::Sym64<LE>) -> u8 {
    match symbol.st_bind() {
        _ if symbol.st_type() == elf::STT_GNU_IFUNC => 3,
        elf::STB_GLOBAL | elf::STB_GNU_UNIQUE => 0,
        elf::STB_WEAK => 1,
        _ => 2,
    }
}

/// The code of `.init` and `.fini` is one function each, in parts that start files supply. Its
/// symbol, where there is one, has no size, and would name the procedure linkage table behind it.
fn name_start_files(file: &File<'_>, out: &mut Elf) {
    for header in file.table.iter() {
        let name = match file.name(header) {
            b".init" => "_init",
            b".fini" => "_fini",
            _ => continue,
        };
        let (address, size) = (header.sh_addr(LE), header.sh_size(LE));
        let is_code = header.sh_flags(LE).0 & elf::SHF_EXECINSTR.0 != 0;
        if !is_code || header.sh_type(LE) == elf::SHT_NOBITS {
            continue;
        }
        let mut known = out.parts.symbols.iter_mut();
        match known.find(|s| s.address == address && s.name == name) {
            Some(symbol) if symbol.size == 0 => symbol.size = size,
            Some(_) => {}
            None => out.parts.symbols.push(Symbol {
                address,
                size,
                name: name.into(),
            }),
        }
    }
}

/// A symbol table and its strings.
pub(super) struct Table<'a> {
    pub(super) symbols: Syms<'a>,
    /// The index of the table's section.
    pub(super) section: object::SectionIndex,
    strings: &'a [u8],
    offset: u64,
}

impl<'a> Table<'a> {
    /// The name of a symbol; `None` if it has none or an excessively long one.
    pub(super) fn name(&self, symbol: &elf::Sym64<LE>) -> Option<&'a [u8]> {
        string(self.strings, symbol.st_name(LE), NAME_LEN_MAX).filter(|name| !name.is_empty())
    }

    /// The names of the symbols that the file defines.
    pub(super) fn defined(&self) -> impl Iterator<Item = &'a [u8]> + '_ {
        let defined = |s: &&elf::Sym64<LE>| s.st_shndx(LE) != elf::SHN_UNDEF;
        let symbols = self.symbols.iter().filter(defined);
        symbols.filter_map(|symbol| self.name(symbol))
    }
}

/// The dynamic symbol table.
pub(super) fn dynamic<'a>(file: &File<'a>) -> Option<Table<'a>> {
    from_section(file, elf::SHT_DYNSYM, &mut Elf::default()).or_else(|| from_dynamic(file))
}

/// The symbol table in the section of this type; a malformed one is recorded as a problem.
pub(super) fn from_section<'a>(
    file: &File<'a>,
    kind: elf::SectionType,
    out: &mut Elf,
) -> Option<Table<'a>> {
    let (section, header) = file
        .table
        .enumerate()
        .find(|(_, s)| s.sh_type(LE) == kind)?;

    let offset = header.sh_offset(LE);

    // Read in a closure, so that any failure below becomes the same problem.
    let read = || {
        let symbols = header
            .data_as_array::<elf::Sym64<LE>, _>(LE, file.data)
            .ok()?;
        let strings = file.table.section(header.link(LE)).ok()?;
        Some(Table {
            symbols,
            section,
            strings: strings.data(LE, file.data).ok()?,
            offset,
        })
    };

    // A debug file has headers of sections whose contents stayed in the program.
    if header.sh_size(LE) == 0 {
        return None;
    }

    let table = read();
    if table.is_none() {
        let section = if kind == elf::SHT_SYMTAB {
            ".symtab"
        } else {
            ".dynsym"
        };
        let error = ElfError::new(ElfErrorKind::Symbols, section, offset);
        out.problems.push(error);
    }

    table
}

/// The dynamic symbol table of a file without section headers. Its length comes from `DT_HASH`, or
/// it ends where the strings start.
fn from_dynamic<'a>(file: &File<'a>) -> Option<Table<'a>> {
    let segment = file
        .programs
        .iter()
        .find(|p| p.p_type(LE) == elf::PT_DYNAMIC)?;

    let entries = segment
        .data_as_array::<elf::Dyn64<LE>, _>(LE, file.data)
        .ok()?;

    let value = |tag: elf::DynamicTag| {
        let entry = entries.iter().find(|d| d.d_tag.get(LE) == tag)?;
        Some(entry.d_val.get(LE))
    };

    // These tags hold addresses, which the segments translate to offsets.
    let (symtab, strtab) = (value(elf::DT_SYMTAB)?, value(elf::DT_STRTAB)?);
    let (offset, bytes) = file.at_address(symtab)?;
    let (_, strings) = file.at_address(strtab)?;

    // `DT_HASH` starts with `nbucket` and `nchain`; the latter is the number of symbols (gABI,
    // chapter 5).
    let nchain = value(elf::DT_HASH)
        .and_then(|hash| file.at_address(hash)?.1.get(4..8)?.first_chunk().copied())
        .map(|count| u64::from(u32::from_le_bytes(count)));

    // Linkers put `.dynstr` right behind `.dynsym`, so without a hash table the gap gives the
    // count.
    let size = core::mem::size_of::<elf::Sym64<LE>>() as u64;
    let gap = strtab.checked_sub(symtab).map(|gap| gap / size);
    let count = nchain.or(gap)?.min(bytes.len() as u64 / size);

    let symbols = file
        .data
        .read_slice_at(offset, usize::try_from(count).ok()?)
        .ok()?;

    // Neither limit is trusted alone: the smaller one counts.
    let len = value(elf::DT_STRSZ)?.min(strings.len() as u64);
    Some(Table {
        symbols,
        section: object::SectionIndex(0),
        strings: &strings[..len as usize],
        offset,
    })
}

fn take(file: &File<'_>, table: &Table<'_>, out: &mut Elf) {
    // Names may overlap, so a small file could list millions of long names.
    let strings_len = table.strings.len() as u64;
    let limit = strings_len
        .saturating_mul(NAME_SHARING_MAX)
        .max(NAME_BYTES_MIN);

    let text = merged(&out.parts.text);
    let (mut used, mut found) = (0u64, Vec::new());

    for symbol in table.symbols.iter().filter(|s| is_code(file, s, &text)) {
        let name = string(table.strings, symbol.st_name(LE), NAME_LEN_MAX);
        used = used.saturating_add(name.map_or(NAME_LEN_MAX, <[u8]>::len) as u64);

        if used > limit {
            let what = ElfErrorKind::SymbolNames { limit };
            out.problems
                .push(ElfError::new(what, "symbols", table.offset));
            break;
        }

        let Some(name) = name.filter(|name| !name.is_empty()) else {
            continue;
        };

        // Only what is exported is in the dynamic table: behind a symbol without a size there may
        // be other functions. musl's memset was the name of its system calls.
        let size = match (symbol.st_size(LE), out.has_symtab) {
            (0, false) => 1,
            (size, _) => size,
        };

        let symbol_of = Symbol {
            address: symbol.st_value(LE),
            size,
            name: String::from_utf8_lossy(name).into_owned(),
        };
        found.push((symbol_rank(symbol), symbol_of));
    }

    // An image keeps the order of names at one address.
    found.sort_by(|(a, one), (b, other)| {
        (one.address, a, &one.name).cmp(&(other.address, b, &other.name))
    });
    let found = found.into_iter().map(|(_, symbol)| symbol);
    out.parts.symbols.extend(found);
}

/// The same ranges, sorted and merged.
fn merged(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted = ranges.to_vec();
    sorted.sort_by_key(|r| r.start);
    let mut out: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match out.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
    out
}

/// Whether the symbol is a function, or a label without a type in an executable section
/// (hand-written assembly).
fn is_code(file: &File<'_>, symbol: &elf::Sym64<LE>, text: &[Range<u64>]) -> bool {
    let kind = symbol.st_type();
    let section = symbol.st_shndx(LE);
    if section == elf::SHN_UNDEF {
        return false;
    }
    if kind == elf::STT_FUNC || kind == elf::STT_GNU_IFUNC {
        return true;
    }
    if kind != elf::STT_NOTYPE {
        return false;
    }
    let header = file.table.section(object::SectionIndex(section.0.into()));
    let executable = header.map_or(file.table.is_empty(), |s| {
        s.sh_flags(LE).0 & elf::SHF_EXECINSTR.0 != 0
    });
    let address = symbol.st_value(LE);
    let after = text.partition_point(|r| r.start <= address);
    let holds = after
        .checked_sub(1)
        .is_some_and(|at| text[at].contains(&address));
    executable && holds
}
