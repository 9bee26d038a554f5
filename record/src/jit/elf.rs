//! ELF images that a program gives to gdb.
//!
//! The addresses of their sections are those of the code in memory. In a relocatable object
//! relocations still have to be applied, as gdb does (`symfile_relocate_debug_section`).

use super::frames::{Frames, SECTION_MAX};
use object::read::elf::ElfFile64;
use object::{
    LittleEndian, Object as _, ObjectKind, ObjectSection as _, ObjectSymbol, Relocation,
    RelocationKind, RelocationTarget, SymbolKind,
};
use unwind_sim_emulator::AddressSpace;
use unwind_sim_unwind::image::{SectionKind, Symbol};

type File<'a> = ElfFile64<'a, LittleEndian>;

/// What is read from an image.
pub(super) struct Contents {
    pub(super) symbols: Vec<Symbol>,
    pub(super) frames: Option<Frames>,
}

/// Reads the image at `address`. `None` if it cannot be read.
pub(super) fn read(memory: &AddressSpace, address: u64, size: u64) -> Option<Contents> {
    if size > SECTION_MAX {
        return None;
    }
    let mut bytes = vec![0; size as usize];
    memory.read(address, &mut bytes).ok()?;
    contents(&bytes)
}

fn contents(bytes: &[u8]) -> Option<Contents> {
    let file = File::parse(bytes).ok()?;
    let symbols: Vec<Symbol> = file.symbols().filter_map(|s| symbol(&file, &s)).collect();
    let find = |name| {
        file.sections()
            .find(|s| s.name() == Ok(name) && s.size() > 0)
    };
    let kinds = [SectionKind::EhFrame, SectionKind::DebugFrame];
    let frames = kinds.into_iter().find_map(|kind| {
        let section = find(kind.as_str())?;
        let mut data = section.uncompressed_data().ok()?.into_owned();
        for (offset, relocation) in section.relocations() {
            let place = section.address().wrapping_add(offset);
            relocate(&file, &mut data, offset, place, &relocation)?;
        }
        Some(Frames {
            kind,
            symbols: symbols.clone(),
            ..Frames::eh_frame(section.address(), data)
        })
    });
    Some(Contents { symbols, frames })
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
