//! `.gopclntab`: where the functions of a Go program start. Its runtime needs the table, so that it is in
//! stripped programs, too.
//!
//! Source: Go `src/debug/gosym/pclntab.go` and `src/cmd/link/internal/ld/pcln.go`, 1.2 to 1.25.

use crate::file::File;

/// The name of the section; the linker puts it elsewhere in position-independent programs.
const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];
/// The first word, by version.
const GO_1_2: u32 = 0xffff_fffb;
const GO_1_16: u32 = 0xffff_fffa;
const GO_1_18: u32 = 0xffff_fff0;
const GO_1_20: u32 = 0xffff_fff1;
/// The smallest length of an instruction and the size of a pointer on x86-64, bytes.
const SIZES: [u8; 2] = [1, 8];
/// The bytes in front of the header's words.
const HEAD: u64 = 8;
/// The maximum number of functions that are read.
const FUNCTIONS_MAX: u64 = 1 << 22;

/// The starts (svma) of the functions; none if the file has no such table.
pub(super) fn starts(file: &File) -> Vec<u64> {
    let mut sections = SECTIONS.iter().filter_map(|name| file.section_range(name));
    let found = sections.find_map(|section| read(file, section.start));
    found.unwrap_or_default()
}

fn read(file: &File, table: u64) -> Option<Vec<u64>> {
    let head = file.bytes(table);
    let magic = u32::from_le_bytes(*head.first_chunk()?);
    if head.get(6..8)? != SIZES {
        return None;
    }
    let word = |number: u64| file.pointer(table.checked_add(HEAD + 8 * number)?);
    let count = word(0)?.min(FUNCTIONS_MAX);
    let (first, width, base) = match magic {
        // Since 1.18, distances from the start of the code; in an older one, addresses.
        GO_1_18 | GO_1_20 => (table.checked_add(word(7)?)?, 4, text(file, word(2)?)?),
        GO_1_16 => (table.checked_add(word(6)?)?, 8, 0),
        GO_1_2 => (table.checked_add(HEAD + 8)?, 8, 0),
        _ => return None,
    };
    let start = |number: u64| {
        let at = first.checked_add(number * 2 * width)?;
        let value = match width {
            4 => u32::from_le_bytes(*file.bytes(at).first_chunk()?).into(),
            _ => file.pointer(at)?,
        };
        base.checked_add(value)
    };
    let starts = (0..count).map_while(start);
    Some(starts.filter(|&at| file.code_at(at).is_some()).collect())
}

/// The start of the code that distances are from. Linkers of Go 1.25 and later leave it out of the header.
fn text(file: &File, told: u64) -> Option<u64> {
    match told {
        0 => file.section_range(".text").map(|text| text.start),
        told => Some(told),
    }
}
