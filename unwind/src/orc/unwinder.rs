//! The ORC unwinder: finds the entry of an address like Linux.

use super::derived::OrcEntry;
use super::entry::ENTRY_LEN;
use super::index::Index;
use super::layout::Encoding;
use super::read::{Malformed, Sorted};
use crate::cache::{Cache, NewRow, RowId, UnitId, UnitKey};
use crate::derived::{self, NO_ROW, Tables};
use crate::finder::Finder;
use crate::image::{Image, Mapping, SectionKind};
use crate::reason::Reason;
use crate::regs::RegMask;
use crate::row::TableKind;
use alloc::vec::Vec;
use core::ops::Range;

/// The ORC unwinder. Like `unwind_next_frame`, it looks up return addresses at ra - 1 and exact ips
/// unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Orc {
    encoding: Option<Encoding>,
    tables: Tables,
}

/// The number of entries compiled together; the format has no functions.
const CHUNK: usize = 32;

impl Orc {
    /// Reads tables in `encoding`, or in the detected encoding if it is `None`.
    pub const fn new(encoding: Option<Encoding>, tables: Tables) -> Self {
        Orc { encoding, tables }
    }

    /// The encoding passed to [`Orc::new`].
    pub const fn encoding(&self) -> Option<Encoding> {
        self.encoding
    }

    fn find_real(&self, image: &Image, svma: u64, cache: &mut Cache) -> Result<RowId, Reason> {
        let index = cache.index(image.id(), TableKind::Orc, || {
            Index::new(image, self.encoding)
        });
        let index = match &*index {
            Ok(Some(index)) => index,
            Ok(None) => return Err(Reason::NoTable { pc: svma }),
            Err(error) => return Err((*error).into()),
        };

        // A table without a known layout is an error only when it is asked for a row.
        let table = index.table()?;
        let encoding = index.encoding().ok_or(NO_LAYOUT)?;
        let position = table.find(svma).ok_or(Reason::NoRow { pc: svma })?;

        // Positions are grouped by number, not by address, since the format has no functions.
        let first = position / CHUNK * CHUNK;
        let mut chunk = Chunk {
            table: &table,
            encoding,
            positions: first..(first + CHUNK).min(table.len()),
            text: index.text(),
        };
        // A unit has room for offsets of 32 bits; the chunks of real tables are smaller.
        if chunk.is_too_wide() {
            chunk.positions = position..position + 1;
        }

        // The key has the chunk's start, so that all addresses of a chunk find the same unit.
        let key = UnitKey {
            table: TableKind::Orc,
            image: Some(image.id()),
            offset: (chunk.positions.start * ENTRY_LEN) as u64,
            block: 0,
        };

        let unit = match cache.unit(&key) {
            Some(unit) => unit?,
            // Most chunks are asked for only one row.
            None => chunk.compile(position..position + 1, key, cache),
        };

        // Another address of the chunk: now all of it is worth compiling.
        let unit = if cache.knows(unit, svma) {
            unit
        } else {
            chunk.compile(chunk.positions.clone(), key, cache)
        };

        let row = cache.find_row(unit, svma)?;
        if *cache.rule(row) != NO_ROW {
            return Ok(row);
        }

        // The entry has no rule: find out why.
        let stored = table.stored(position).unwrap_or(0);
        let what = match table.table().entry(stored, encoding.layout) {
            Some(Ok(entry)) => entry.rule(encoding.sp_indirect).err(),
            Some(Err(error)) => Some(error.what),
            None => None,
        };

        Err(Reason::MalformedRow {
            section: ".orc_unwind",
            offset: (stored * ENTRY_LEN) as u64,
            what: what.unwrap_or("no entry"),
        })
    }
}

/// Compiles the whole table into `cache`, in `encoding` or in the detected one; returns its units
/// by address. The format has no functions, so a unit is any run of entries. Empty if the image has
/// no table.
///
/// # Errors
/// If its sections do not fit together, or its entries fit no known layout.
pub fn compile_all(
    image: &Image,
    encoding: Option<Encoding>,
    cache: &mut Cache,
) -> Result<Vec<UnitId>, Malformed> {
    let Some(index) = Index::new(image, encoding)? else {
        return Ok(Vec::new());
    };

    let table = index.table()?;
    let encoding = index.encoding().ok_or(NO_LAYOUT)?;
    let chunk = |positions| Chunk {
        table: &table,
        encoding,
        positions,
        text: index.text(),
    };

    let mut units = Vec::with_capacity(table.len().div_ceil(CHUNK));
    let mut first = 0;
    while first < table.len() {
        let mut next = (first + CHUNK).min(table.len());
        // As in `find_real`, so that both make the same units.
        if chunk(first..next).is_too_wide() {
            next = first + 1;
        }

        let chunk = chunk(first..next);
        let key = UnitKey {
            table: TableKind::Orc,
            image: Some(image.id()),
            offset: (first * ENTRY_LEN) as u64,
            block: 0,
        };

        units.push(chunk.compile(chunk.positions.clone(), key, cache));
        first = next;
    }

    Ok(units)
}

const NO_LAYOUT: Malformed = Malformed {
    section: ".orc_unwind",
    offset: 0,
    what: "the entries fit no known layout; give the kernel's version",
};

/// The entries of one unit.
struct Chunk<'a> {
    table: &'a Sorted<'a>,
    encoding: Encoding,
    positions: Range<usize>,
    text: &'a Range<u64>,
}

impl Chunk<'_> {
    /// The first address that the entry at `position` covers. The very first entry starts at the
    /// start of the text.
    fn start(&self, position: usize) -> u64 {
        let ip = self.table.ip(position).unwrap_or(self.text.end);
        if position == 0 {
            self.text.start.min(ip)
        } else {
            ip
        }
    }

    /// The first address after the entries before `position`. The last entry ends at the end of the
    /// text.
    fn end(&self, position: usize) -> u64 {
        let last = || self.table.ip(position.saturating_sub(1)).unwrap_or(0);
        let ip = self.table.ip(position);
        ip.unwrap_or_else(|| self.text.end.max(last().saturating_add(1)))
    }

    /// Whether the chunk's entries span 4 GiB or more, too much for a unit. A real table's do not.
    fn is_too_wide(&self) -> bool {
        let (first, last) = (self.positions.start, self.positions.end.saturating_sub(1));
        let width = self.start(last).saturating_sub(self.start(first));
        u32::try_from(width).is_err()
    }

    fn row(&self, position: usize) -> Option<NewRow> {
        let stored = self.table.stored(position)?;
        let rule = match self.table.table().entry(stored, self.encoding.layout)? {
            Ok(entry) => entry.rule(self.encoding.sp_indirect).unwrap_or(NO_ROW),
            Err(_) => NO_ROW,
        };
        Some(NewRow {
            start: self.start(position),
            offset: (stored * ENTRY_LEN) as u64,
            rule,
        })
    }

    /// Compiles the entries at `wanted`, either all of the chunk or one, as the chunk's unit.
    fn compile(&self, wanted: Range<usize>, key: UnitKey, cache: &mut Cache) -> UnitId {
        let all = wanted == self.positions;
        let known = self.start(wanted.start)..self.end(wanted.end);
        let range = self.start(self.positions.start)..self.end(self.positions.end);
        let mut unit = cache.begin_unit(key, range);
        for position in wanted.clone() {
            // If several entries have the same address, the last one is used.
            if self.table.ip(position + 1) == Some(self.start(position)) {
                continue;
            }
            if let Some(row) = self.row(position) {
                unit.push(row);
            }
        }
        if all {
            unit.finish(None)
        } else {
            unit.finish_part(known)
        }
    }
}

impl Finder for Orc {
    fn name(&self) -> &str {
        match self.encoding.map(Encoding::as_str) {
            None => "orc",
            Some("4.14") => "orc:4.14",
            Some("5.12") => "orc:5.12",
            Some("6.3") => "orc:6.3",
            Some("6.4") => "orc:6.4",
            Some(_) => "orc:7.1",
        }
    }

    fn carries(&self) -> RegMask {
        RegMask::FRAME
    }

    fn find(&self, mapping: &Mapping, svma: u64, cache: &mut Cache) -> Result<RowId, Reason> {
        let Some(image) = mapping.image.as_deref() else {
            return Err(Reason::NoImage { pc: svma });
        };
        let has_table = image.section(SectionKind::OrcUnwind).is_some();
        match self.tables {
            Tables::Real => self.find_real(image, svma, cache),
            Tables::RealOrDerived if has_table => self.find_real(image, svma, cache),
            Tables::RealOrDerived | Tables::Derived => {
                derived::find::<OrcEntry>(image, svma, cache)
            }
        }
    }
}

#[cfg(test)]
mod tests;
