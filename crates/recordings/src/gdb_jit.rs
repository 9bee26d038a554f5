//! gdb's JIT interface: ELF files in memory that describe generated code.
//!
//! Source: gdb's manual, "JIT Compilation Interface". A program links what it has registered in a
//! list behind `__jit_debug_descriptor`; LLVM, qemu, Julia and PostgreSQL do. The addresses of the
//! sections are those of the code in memory. In a relocatable object relocations still have to be
//! applied, as gdb does (`symfile_relocate_debug_section`).

use object::read::elf::ElfFile64;
use object::{
    LittleEndian, Object as _, ObjectKind, ObjectSection as _, ObjectSymbol, Relocation,
    RelocationKind, RelocationTarget, SymbolKind,
};
use std::collections::HashSet;
use std::ops::Range;
use unwind_sim_unwind::dwarf;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Section, SectionKind, Symbol};
use unwind_sim_unwind::row::TableKind;

type File<'a> = ElfFile64<'a, LittleEndian>;

/// Maximum size of a registered file, bytes.
pub const FILE_SIZE_MAX: u64 = 64 << 20;
/// Maximum number of files in a list.
const ENTRIES_MAX: usize = 1 << 16;
/// Maximum size of all files of a list together, bytes.
const LIST_SIZE_MAX: u64 = 256 << 20;

/// A file that describes generated code.
#[derive(Clone, Debug)]
pub struct SymbolFile {
    /// The functions.
    pub symbols: Vec<Symbol>,
    /// `.eh_frame`, or else `.debug_frame`, with relocations applied.
    pub table: Option<Section>,
}

impl SymbolFile {
    /// The code that the file describes: what its rows cover, or else its symbols. Sorted, without
    /// overlaps.
    pub fn code(&self) -> Vec<Range<u64>> {
        let covered = self.table.as_ref().map(|table| {
            let kind = match table.kind {
                SectionKind::DebugFrame => TableKind::DebugFrame,
                _ => TableKind::EhFrame,
            };
            // The table's reader works on images, and this one needs nothing else.
            let image = Image::new(ImageParts {
                sections: vec![table.clone()],
                ..ImageParts::default()
            });
            let units = dwarf::units(&image, kind).filter_map(Result::ok);
            units.map(|unit| unit.range).collect::<Vec<_>>()
        });

        let named = || {
            let symbols = self.symbols.iter();
            symbols.map(|s| s.address..s.address.saturating_add(s.size))
        };

        let mut code = covered.unwrap_or_default();
        // Without rows, only the symbols say where the code is.
        if code.is_empty() {
            code = named().collect();
        }

        code.retain(|range| !range.is_empty());
        code.sort_by_key(|range| (range.start, range.end));
        // What touches is joined, so that the ranges do not overlap.
        code.dedup_by(|next, last| {
            let joins = next.start <= last.end;
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
        code
    }
}

/// Why a list was not read to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A part of the list is not in the memory that was recorded.
    #[error(
        "gdb's list of generated code: {what} at {address:#x} is not in the core; {read} files before it \
         are used"
    )]
    Missing {
        /// What is missing.
        what: &'static str,
        /// Its address.
        address: u64,
        /// Number of files before it.
        read: u64,
    },
    /// The list is endless or too large.
    #[error(
        "gdb's list of generated code has a loop, or more than {ENTRIES_MAX} files or {LIST_SIZE_MAX} \
         bytes; {read} files of it are used"
    )]
    Limit {
        /// Number of files that were read.
        read: u64,
    },
    /// Registered files are not ELF files of x86-64.
    #[error(
        "gdb's list of generated code: {count} files cannot be read, the first at {address:#x}"
    )]
    Files {
        /// Number of files.
        count: u64,
        /// Address of the first one.
        address: u64,
    },
}

/// The files that are registered in the descriptor at `descriptor`, as far as they can be read, and
/// why others cannot. `read` returns up to that many bytes of memory.
pub fn registered(
    descriptor: u64,
    mut read: impl FnMut(u64, u64) -> Vec<u8>,
) -> (Vec<SymbolFile>, Vec<Problem>) {
    let mut files = Vec::new();
    let mut problems = Vec::new();
    let (mut refused, mut first_refused) = (0, 0);
    let mut left = LIST_SIZE_MAX;
    let mut seen = HashSet::new();
    let mut count = 0;

    // struct jit_descriptor: version, action_flag, relevant_entry, first_entry.
    let mut words = |address: u64, count: u64| -> Option<Vec<u64>> {
        let bytes = read(address, count * 8);
        let words = bytes.as_chunks::<8>().0;
        let words: Vec<u64> = words.iter().map(|w| u64::from_le_bytes(*w)).collect();
        (words.len() as u64 == count).then_some(words)
    };
    let missing = |what, address, read| Problem::Missing {
        what,
        address,
        read,
    };
    // The first two members have four bytes each, so these are three words.
    let Some(head) = words(descriptor, 3) else {
        return (files, vec![missing("the descriptor", descriptor, 0)]);
    };
    let mut list = Vec::new();
    let mut entry = head[2];
    while entry != 0 {
        // A damaged list may run in a circle.
        if !seen.insert(entry) || seen.len() > ENTRIES_MAX {
            problems.push(Problem::Limit { read: count });
            break;
        }
        // struct jit_code_entry: next_entry, prev_entry, symfile_addr, symfile_size.
        let Some(fields) = words(entry, 4) else {
            problems.push(missing("an entry", entry, count));
            break;
        };
        list.push((fields[2], fields[3]));
        entry = fields[0];
        count += 1;
    }

    for (address, size) in list {
        // All files together are bounded, too.
        let size_max = FILE_SIZE_MAX.min(left);
        let bytes = if size <= size_max {
            read(address, size)
        } else {
            Vec::new()
        };
        left = left.saturating_sub(size);
        let whole = (bytes.len() as u64 == size).then_some(bytes);
        match whole.and_then(|bytes| symbol_file(&bytes)) {
            Some(file) => files.push(file),
            None => {
                // One problem is reported for all of them.
                if refused == 0 {
                    first_refused = address;
                }
                refused += 1;
            }
        }
    }
    if refused > 0 {
        problems.push(Problem::Files {
            count: refused,
            address: first_refused,
        });
    }
    (files, problems)
}

/// The address (svma) of `__jit_debug_descriptor` in a file; it is data, and therefore not among the
/// symbols of an image.
pub fn descriptor(image: &Image) -> Option<u64> {
    let section = image.sections().iter().find(|s| !s.data.is_empty())?;
    let file: &[u8] = (**section.data.owner()).as_ref();
    let file = File::parse(file).ok()?;
    let mut all = file.symbols().chain(file.dynamic_symbols());
    let found = all.find(|s| {
        let name = s.name().unwrap_or_default();
        name.split('@').next() == Some("__jit_debug_descriptor") && s.is_definition()
    })?;
    Some(found.address())
}

/// Reads a registered file. `None` if it is not an ELF file of 64 bits, or malformed.
pub fn symbol_file(bytes: &[u8]) -> Option<SymbolFile> {
    let file = File::parse(bytes).ok()?;
    let symbols: Vec<Symbol> = file.symbols().filter_map(|s| symbol(&file, &s)).collect();

    let find = |name| {
        file.sections()
            .find(|s| s.name() == Ok(name) && s.size() > 0)
    };

    let kinds = [SectionKind::EhFrame, SectionKind::DebugFrame];
    let table = kinds.into_iter().find_map(|kind| {
        let section = find(kind.as_str())?;
        // A small section may unpack to more than memory has.
        let unpacked = section.compressed_data().ok()?;
        if unpacked.uncompressed_size > FILE_SIZE_MAX {
            return None;
        }
        let mut data = unpacked.decompress().ok()?.into_owned();
        for (offset, relocation) in section.relocations() {
            let place = section.address().wrapping_add(offset);
            // A table with an address that was not relocated would describe other code.
            relocate(&file, &mut data, offset, place, &relocation)?;
        }
        Some(Section {
            kind,
            address: section.address(),
            data: Bytes::from_vec(data),
        })
    });

    Some(SymbolFile { symbols, table })
}

/// The address of a symbol: in a relocatable object its value is an offset in its section.
fn address<'a>(file: &File<'a>, symbol: &impl ObjectSymbol<'a>) -> u64 {
    let index = symbol.section_index();
    let index = index.filter(|_| file.kind() == ObjectKind::Relocatable);
    let section = index.and_then(|index| file.section_by_index(index).ok());
    let base = section.map_or(0, |section| section.address());
    symbol.address().wrapping_add(base)
}

fn symbol<'a>(file: &File<'a>, symbol: &impl ObjectSymbol<'a>) -> Option<Symbol> {
    if symbol.kind() != SymbolKind::Text || !symbol.is_definition() {
        return None;
    }
    let name = symbol.name().ok().filter(|name| !name.is_empty())?;
    Some(Symbol {
        address: address(file, symbol),
        size: symbol.size(),
        name: name.to_owned(),
    })
}

/// Applies a relocation to the bytes at `offset`, whose address is `place` (psABI 4.4). `None` if
/// it is malformed.
fn relocate(
    file: &File<'_>,
    data: &mut [u8],
    offset: u64,
    place: u64,
    relocation: &Relocation,
) -> Option<()> {
    let RelocationTarget::Symbol(index) = relocation.target() else {
        return Some(());
    };
    let target = address(file, &file.symbol_by_index(index).ok()?);
    let value = target.wrapping_add_signed(relocation.addend());
    let value = match relocation.kind() {
        RelocationKind::Absolute => value,
        RelocationKind::Relative | RelocationKind::PltRelative => value.wrapping_sub(place),
        _ => return Some(()),
    };
    let size = usize::from(relocation.size() / 8).min(8);
    let start = usize::try_from(offset).ok()?;
    let word = data.get_mut(start..start.checked_add(size)?)?;
    word.copy_from_slice(&value.to_le_bytes()[..size]);
    Some(())
}

#[cfg(test)]
mod tests;
