//! The words of a program that hold addresses of its own code and data.
//!
//! Source: System V gABI, "Relocation" (`SHT_RELA`, `SHT_RELR`); x86-64 psABI, "Relocation Types".

use crate::dynamic::Dynamic;
use object::elf;
use object::endian::LittleEndian as LE;
use object::read::elf::{FileHeader as _, Rela as _, SectionHeader as _};

/// The maximum number of pointers read from a file; libLLVM has 300,000.
pub(crate) const POINTERS_MAX: usize = 1 << 24;
/// The size of a pointer, bytes.
const WORD: usize = 8;

/// The words that hold addresses, and the addresses (svma), in order. `word` is the word at an address
/// as the file has it, and `is_code` whether an address lies in code.
///
/// A program that is linked to fixed addresses has no relocations that tell: there, each aligned word
/// of its data that is an address of code counts.
pub(crate) fn read(
    data: &[u8],
    word: impl Fn(u64) -> Option<u64> + Copy,
    is_code: impl Fn(u64) -> bool,
) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    let Ok(header) = elf::FileHeader64::<LE>::parse(data) else {
        return out;
    };
    let Ok(sections) = header.sections(LE, data) else {
        return out;
    };

    if let Some(dynamic) = Dynamic::read(data) {
        out = by_dynamic(&dynamic, word);
    }

    let is_fixed = header.e_type(LE) == elf::ET_EXEC;
    for section in sections.iter() {
        let mut add = |place: u64, value: u64| {
            if out.len() < POINTERS_MAX {
                out.push((place, value));
            }
        };

        match section.sh_type(LE) {
            elf::SHT_RELA => {
                let relocations: &[elf::Rela64<LE>] =
                    section.data_as_array(LE, data).unwrap_or(&[]);
                for rela in relocations {
                    // Both are of the program itself: where it lies, plus the addend (psABI,
                    // "Relocation Types").
                    let kind = rela.r_type(LE, false);
                    if kind == elf::R_X86_64_RELATIVE || kind == elf::R_X86_64_IRELATIVE {
                        add(rela.r_offset(LE), rela.r_addend(LE).cast_unsigned());
                    }
                }
            }
            elf::SHT_RELR => {
                let places = section.relr(LE, data).ok().flatten();
                for place in places.into_iter().flatten().take(POINTERS_MAX) {
                    // RELR stores no addends: the word in place is the addend.
                    if let Some(value) = word(place) {
                        add(place, value);
                    }
                }
            }
            elf::SHT_PROGBITS | elf::SHT_INIT_ARRAY | elf::SHT_FINI_ARRAY if is_fixed => {
                let flags = section.sh_flags(LE).0;
                if flags & elf::SHF_ALLOC.0 == 0 || flags & elf::SHF_EXECINSTR.0 != 0 {
                    continue;
                }

                let start = section.sh_addr(LE);
                let bytes = section.data(LE, data).unwrap_or_default();

                if start % WORD as u64 != 0 {
                    continue;
                }
                // The section of a damaged file may go on behind the last address.
                let mut next = Some(start);
                for word in bytes.as_chunks::<WORD>().0 {
                    let Some(place) = next else { break };
                    next = place.checked_add(WORD as u64);
                    let value = u64::from_le_bytes(*word);
                    if is_code(value) {
                        add(place, value);
                    }
                }
            }
            _ => {}
        }
    }

    out.sort_unstable();
    out.dedup_by_key(|p| p.0);
    out
}

/// The words that the dynamic section of a file without section headers names.
fn by_dynamic(dynamic: &Dynamic<'_>, word: impl Fn(u64) -> Option<u64>) -> Vec<(u64, u64)> {
    let relocations = dynamic.relocations().filter(|relocation| {
        let kind = relocation.r_type(LE, false);
        kind == elf::R_X86_64_RELATIVE || kind == elf::R_X86_64_IRELATIVE
    });
    let relocated = relocations.map(|rela| (rela.r_offset(LE), rela.r_addend(LE).cast_unsigned()));
    let packed = dynamic.relr().into_iter();
    let packed = packed.filter_map(|place| Some((place, word(place)?)));
    relocated.chain(packed).take(POINTERS_MAX).collect()
}
