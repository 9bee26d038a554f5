//! Go's table of functions (Go `src/cmd/link/internal/ld/pcln.go`, `src/runtime/symtab.go`): a
//! header, the start of each function in order, and what the runtime has to know of each. It lists
//! what Go's compiler and assembler made, and nothing that another linker put beside it.

use super::spans::SPANS_MAX;
use core::ops::Range;

/// Go 1.2 to 1.15.
const MAGIC_1_2: u32 = 0xffff_fffb;
/// Go 1.16 and 1.17.
const MAGIC_1_16: u32 = 0xffff_fffa;
/// Go 1.18 and 1.19.
const MAGIC_1_18: u32 = 0xffff_fff0;
/// Since Go 1.20.
const MAGIC_1_20: u32 = 0xffff_fff1;
/// The bytes behind the magic number on x86-64: two zeros, the shortest instruction and the size of
/// a pointer.
const QUANTUM: [u8; 4] = [0, 0, 1, 8];
/// Where the header has the address of the first function, bytes. Since Go 1.18.
pub const TEXT_START: usize = 8 + 8 * 2;

/// What the table is aligned to, bytes.
pub const ALIGN: usize = 16;
/// The names of the section with the table.
pub const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];

/// A table.
#[derive(Clone, Copy, Debug)]
pub struct GoFunctions<'a> {
    /// From the list of functions on.
    list: &'a [u8],
    /// What the offsets of descriptions refer to.
    descriptions: &'a [u8],
    count: usize,
    /// The size of an entry of the list, bytes: 8 or 16.
    size: usize,
    /// What the list's 32-bit starts are added to.
    base: u64,
}

/// The table's magic number, if it starts like one.
pub fn magic(table: &[u8]) -> Option<u32> {
    let (magic, rest) = table.split_first_chunk()?;
    let magic = u32::from_le_bytes(*magic);
    let is_known = matches!(magic, MAGIC_1_2 | MAGIC_1_16 | MAGIC_1_18 | MAGIC_1_20);
    (is_known && rest.starts_with(&QUANTUM)).then_some(magic)
}

impl<'a> GoFunctions<'a> {
    /// Reads the header of `table`. `text`: the address (svma) of the first function, where the
    /// header does not have it. `None` if this is not a table, or a damaged one.
    pub fn read(table: &'a [u8], text: impl FnOnce() -> Option<u64>) -> Option<GoFunctions<'a>> {
        let word = |index: usize| word(table, 8 + 8 * index);
        let offset = |index| word(index).and_then(|at| usize::try_from(at).ok());

        let magic = magic(table)?;
        let count = usize::try_from(word(0)?).ok()?;

        // An entry was two words before Go 1.18, and is two offsets of 32 bits since
        // (`runtime/symtab.go`).
        let (list, size, base) = match magic {
            MAGIC_1_2 => (16, 16, 0),
            MAGIC_1_16 => (offset(6)?, 16, 0),
            _ => {
                let said = word(2)?;
                let base = if said == 0 { text()? } else { said };
                (offset(7)?, 8, base)
            }
        };

        let list = table.get(list..)?;
        // Behind the last function stands where it ends, and nothing of what is known of one.
        let is_whole = count > 0 && count <= SPANS_MAX && count * size + size / 2 <= list.len();

        let functions = GoFunctions {
            list,
            descriptions: if magic == MAGIC_1_2 { table } else { list },
            count,
            size,
            base,
        };

        let ascends = |index| functions.start(index) <= functions.start(index + 1);
        (is_whole && (0..count).all(ascends)).then_some(functions)
    }

    /// The start (svma) of function `index`; that of the last and one is the end of all.
    fn start(&self, index: usize) -> Option<u64> {
        let entry = self.list.get(index.checked_mul(self.size)?..)?;
        match self.size {
            8 => Some(self.base.wrapping_add(half(entry, 0)?.into())),
            _ => word(entry, 0),
        }
    }

    /// The starts of the functions (svma), in order.
    pub fn starts(&self) -> impl Iterator<Item = u64> {
        (0..self.count).filter_map(|index| self.start(index))
    }

    /// The code of all functions (svma).
    pub fn range(&self) -> Option<Range<u64>> {
        Some(self.start(0)?..self.start(self.count)?)
    }

    /// The starts (svma) of the functions that call `runtime.deferreturn`, and where: there they
    /// continue after a panic was recovered.
    pub fn deferreturns(&self) -> impl Iterator<Item = (u64, u64)> {
        (0..self.count).filter_map(|index| self.deferreturn(index))
    }

    fn deferreturn(&self, index: usize) -> Option<(u64, u64)> {
        let start = self.start(index)?;
        let entry = self.list.get(index * self.size..)?;
        let (offset, header) = match self.size {
            // The start, the name, the size of the arguments.
            8 => (u64::from(half(entry, 4)?), 4 + 4 + 4),
            _ => (word(entry, 8)?, 8 + 4 + 4),
        };
        let description = self.descriptions.get(usize::try_from(offset).ok()?..)?;
        match half(description, header)? {
            0 => None,
            distance => Some((start, start.checked_add(distance.into())?)),
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..)?
        .first_chunk()
        .copied()
        .map(u64::from_le_bytes)
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .copied()
        .map(u32::from_le_bytes)
}
