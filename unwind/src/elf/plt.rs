//! Names for the entries of the procedure linkage table: `write@plt`.
//!
//! An entry is recognized by its code, `jmp *slot(%rip)`, and named after the relocation of that
//! slot. This handles `.plt`, `.plt.sec` and `.plt.got` of every linker alike. What has no such
//! name, as the first entry of a `.plt`, which calls the dynamic linker, is named after the
//! section.

use super::{Elf, File, symbols};
use crate::image::Symbol;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use object::elf;
use object::endian::LittleEndian as LE;
use object::read::elf::SectionHeader as _;

/// Size of an entry, bytes; 8 in a `.plt.got` without IBT.
const ENTRY: usize = 16;
/// The maximum number of entries examined.
const ENTRIES_MAX: usize = 1 << 16;
/// The maximum number of sections examined; linkers make at most three of each kind.
const SECTIONS_MAX: usize = 16;
/// The maximum total length of names, bytes; further names are dropped.
const NAME_BYTES_MAX: usize = 16 << 20;

/// Adds a symbol for each entry whose slot has a relocation with a symbol.
pub(super) fn read(file: &File<'_>, out: &mut Elf) {
    let is_plt = |name: &[u8]| matches!(name, b".plt" | b".plt.sec" | b".plt.got");
    let mut plts = file
        .table
        .iter()
        .filter(|s| is_plt(file.name(s)))
        .take(SECTIONS_MAX)
        .peekable();
    if plts.peek().is_none() {
        return;
    }

    // A static program has entries for indirect functions, and no dynamic symbols.
    let slots = slots(file).unwrap_or_default();

    // The limit is for all PLTs together: sections may overlap in a damaged file.
    let mut left = ENTRIES_MAX;
    for plt in plts {
        let Ok(code) = plt.data(LE, file.data) else {
            continue;
        };

        // Without a size: it is not a function, and the next symbol ends it.
        out.parts.symbols.push(Symbol {
            address: plt.sh_addr(LE),
            size: 0,
            name: String::from_utf8_lossy(file.name(plt)).into_owned(),
        });

        // With IBT, entries of `.plt.got` start with `endbr64` and are as long as the others.
        let small =
            file.name(plt) == b".plt.got" && code.first_chunk() != Some(&[0xf3, 0x0f, 0x1e, 0xfa]);
        let size = if small { ENTRY / 2 } else { ENTRY };

        for (index, entry) in code.chunks_exact(size).enumerate() {
            let Some(rest) = left.checked_sub(1) else {
                return;
            };
            left = rest;

            // Entry 0 of `.plt` has no slot among the relocations, so it gets no name here.
            let address = plt.sh_addr(LE).wrapping_add((index * size) as u64);
            let Some(name) = target(entry, address).and_then(|slot| slots.get(&slot)) else {
                continue;
            };
            out.parts.symbols.push(Symbol {
                address,
                size: size as u64,
                name: format!("{name}@plt"),
            });
        }
    }
}

/// The address of the slot that an entry jumps through.
fn target(entry: &[u8], address: u64) -> Option<u64> {
    let skip = |code: &'_ [u8], prefix: &[u8]| match code.strip_prefix(prefix) {
        Some(rest) => (rest.len(), prefix.len()),
        None => (code.len(), 0),
    };
    let endbr64 = skip(entry, &[0xf3, 0x0f, 0x1e, 0xfa]).1;
    let bnd = skip(&entry[endbr64..], &[0xf2]).1;
    let at = endbr64 + bnd;
    let displacement = entry
        .get(at..)?
        .strip_prefix(&[0xff, 0x25])?
        .first_chunk()?;
    let displacement = i64::from(i32::from_le_bytes(*displacement));
    let next = address.wrapping_add(at as u64 + 6);
    Some(next.wrapping_add_signed(displacement))
}

/// Maps slot addresses to symbol names, for all relocations that fill a slot with a function's
/// address.
fn slots(file: &File<'_>) -> Option<BTreeMap<u64, String>> {
    // Problems of this table are noted by `symbols::read`, not here.
    let table = symbols::from_section(file, elf::SHT_DYNSYM, &mut Elf::default())?;

    let mut slots = BTreeMap::new();
    let mut bytes_left = NAME_BYTES_MAX;
    let tables = file
        .table
        .iter()
        .filter(|s| s.sh_type(LE) == elf::SHT_RELA && s.link(LE) == table.section);

    for header in tables.take(SECTIONS_MAX) {
        let Ok(relocations) = header.data_as_array::<elf::Rela64<LE>, _>(LE, file.data) else {
            continue;
        };

        for relocation in relocations {
            let kind = relocation.r_type(LE, false);
            // Entries of `.plt.got` jump through slots of `GLOB_DAT`.
            if kind != elf::R_X86_64_JUMP_SLOT && kind != elf::R_X86_64_GLOB_DAT {
                continue;
            }

            let index = relocation.r_sym(LE, false) as usize;
            let Some(name) = table.symbols.get(index).and_then(|s| table.name(s)) else {
                continue;
            };

            // Relocations can share one long name, so the sum of the lengths has its own bound.
            if slots.len() >= ENTRIES_MAX || name.len() > bytes_left {
                return Some(slots);
            }

            bytes_left -= name.len();
            let name = String::from_utf8_lossy(name).into_owned();
            slots.insert(relocation.r_offset.get(LE), name);
        }
    }

    Some(slots)
}
