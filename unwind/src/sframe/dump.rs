//! A table's rows as text in the format of `objdump --sframe`.

use super::fde::Fde;
use super::header::{Malformed, Version};
use super::read::{Table, TableRow};
use super::row::{Location, SframeRow, Track};
use crate::regs::Reg;
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

/// A line below a `func idx` heading.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TextRow {
    /// The first address (svma) of the row; in a repeated function, its offset in the block.
    pub pc: u64,
    /// `sp+8`, `fp+16`, `r10+0`, `(fp-8)`; empty if the return address is undefined.
    pub cfa: String,
    /// `u` (unchanged), `c-16`, `(fp+0)`; empty if the return address is undefined.
    pub fp: String,
    /// `f` (fixed), `u` (fixed, as printed for V1), `U` (padding word), `c-8`, or `RA undefined`.
    pub ra: String,
}

impl fmt::Display for TextRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cfa.is_empty() {
            return write!(f, "{:016x}  {}", self.pc, self.ra);
        }
        write!(
            f,
            "{:016x}  {:<10}{:<10}{}",
            self.pc, self.cfa, self.fp, self.ra
        )
    }
}

/// The rows of `fde` as text; ends after the first error.
pub fn text_rows<'a>(
    table: &Table<'a>,
    fde: &Fde,
) -> impl Iterator<Item = Result<TextRow, Malformed>> + use<'a> {
    let (version, fde) = (table.header().version, *fde);
    table
        .rows(&fde)
        .filter(|row| !matches!(row, Ok(TableRow { row: None, .. })))
        .map(move |row| row.map(|row| text(version, &fde, &row)))
}

fn text(version: Version, fde: &Fde, row: &TableRow) -> TextRow {
    let start = u64::from(row.start);
    // Rows that repeat have no address of their own, so their offset is printed.
    let pc = match fde.rep_size {
        Some(_) => start,
        None => fde.start.wrapping_add(start),
    };

    let Some(SframeRow::Tracked { cfa, ra, fp }) = row.row else {
        return TextRow {
            pc,
            cfa: String::new(),
            fp: String::new(),
            ra: "RA undefined".to_string(),
        };
    };

    // The letters are those of objdump, which for V1 says `u` where it says `f` for later versions.
    let ra = match ra {
        Track::Absent if version == Version::V1 => "u".to_string(),
        Track::Absent => "f".to_string(),
        Track::Padded => "U".to_string(),
        Track::At(location) => place(location),
    };
    let fp = match fp {
        Track::At(location) => place(location),
        _ => "u".to_string(),
    };

    TextRow {
        pc,
        cfa: place(cfa),
        fp,
        ra,
    }
}

fn place(location: Location) -> String {
    let offset = location.offset;
    let base = match location.reg {
        // An offset from the CFA is always loaded.
        None => return format!("c{offset:+}"),
        Some(Reg::Rsp) => "sp".to_string(),
        Some(Reg::Rbp) => "fp".to_string(),
        Some(reg) => format!("r{}", reg as u8),
    };
    if location.deref {
        format!("({base}{offset:+})")
    } else {
        format!("{base}{offset:+}")
    }
}
