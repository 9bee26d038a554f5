//! The SFrame unwinder: finds the row of an address and compiles functions when first needed.

use super::derived::SframeV3;
use super::fde::Fde;
use super::header::{Header, Malformed, Version};
use super::profile::Profile;
use super::read::{Order, Table};
use super::row::SframeRow;
use crate::address::Lookup;
use crate::cache::{Cache, NewRow, RowId, UnitId, UnitKey};
use crate::derived::{self, Tables};
use crate::finder::Finder;
use crate::image::{AddressSpace, Image, Mapping, Section, SectionKind};
use crate::reason::Reason;
use crate::regs::RegMask;
use crate::row::TableKind;
use crate::rule::Rule;
use alloc::vec::Vec;
use core::ops::Range;

/// The SFrame unwinder.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sframe {
    profile: Profile,
    tables: Tables,
}

/// What the cache keeps of an image's section.
struct Index {
    section: Section,
    header: Header,
    order: Option<Order>,
}

impl Index {
    fn new(image: &Image) -> Result<Option<Index>, Malformed> {
        let Some(section) = image.section(SectionKind::Sframe) else {
            return Ok(None);
        };
        let table = Table::parse(&section.data, section.address)?;
        let order = table.order();
        Ok(Some(Index {
            header: *table.header(),
            order,
            section: section.clone(),
        }))
    }

    fn table(&self) -> Table<'_> {
        Table::with_header(self.header, &self.section.data, self.section.address)
    }
}

impl Sframe {
    /// The unwinder with `profile` and rows from `tables`.
    pub const fn new(profile: Profile, tables: Tables) -> Self {
        Sframe { profile, tables }
    }

    /// The reader whose strictness this unwinder has.
    pub const fn profile(&self) -> Profile {
        self.profile
    }

    fn find_real(&self, image: &Image, svma: u64, cache: &mut Cache) -> Result<RowId, Reason> {
        let index = cache.index(image.id(), TableKind::Sframe, || Index::new(image));
        let index = match &*index {
            Ok(Some(index)) => index,
            Ok(None) => return Err(Reason::NoTable { pc: svma }),
            Err(error) => return Err((*error).into()),
        };
        let table = index.table();
        self.accept(&table, image, cache)?;
        let Some(fde) = table.find(svma, index.order.as_ref())? else {
            return Err(Reason::NoRow { pc: svma });
        };
        let offset = fde.row_offset(svma);
        self.profile
            .check_rows(&table, &fde, offset, image.text())?;
        find_row(&table, &fde, image, svma, cache)
    }

    /// Checks the whole table as the profile requires; expensive checks run only once.
    fn accept(&self, table: &Table<'_>, image: &Image, cache: &mut Cache) -> Result<(), Reason> {
        // The header's checks are cheap enough for every lookup.
        self.profile.check_table(table)?;
        if self.profile != Profile::KernelV3Validate {
            return Ok(());
        }

        // The key of an impossible unit stores the result.
        let key = UnitKey {
            table: TableKind::Sframe,
            image: Some(image.id()),
            offset: u64::MAX,
            block: 0,
        };

        // A failed unit is remembered, too: the section is refused for good, as in Linux.
        match cache.unit(&key) {
            Some(outcome) => outcome.map(|_| ()),
            None => match self.profile.validate(table, image.text()) {
                Ok(()) => {
                    cache.add_unit(key, 0..0, [], None);
                    Ok(())
                }
                Err(error) => {
                    cache.add_failed_unit(key, error.into());
                    Err(error.into())
                }
            },
        }
    }
}

/// The part of a function that is compiled at once: the whole function or, if its rows repeat
/// (`PCMASK`), one block of it. A PLT can have thousands of blocks.
struct Block {
    key: UnitKey,
    range: Range<u64>,
}

impl Block {
    /// The block that contains `svma`, an address in the function.
    fn of(fde: &Fde, image: &Image, svma: u64) -> Block {
        let (number, size) = match fde.rep_size {
            // A function without rows is one block. Only an empty function has an empty block.
            Some(_) if fde.num_fres > 0 => {
                let size = u64::from(fde.row_limit());
                (svma.wrapping_sub(fde.start) / size.max(1), size)
            }
            _ => (0, u64::from(fde.size)),
        };
        let start = fde.start.saturating_add(number * size);
        let end = fde.start.saturating_add(fde.size.into());
        let range = start..start.saturating_add(size).min(end);
        let key = UnitKey {
            table: TableKind::Sframe,
            image: Some(image.id()),
            offset: fde.offset,
            block: number as u32,
        };
        Block { key, range }
    }
}

/// Compiles all rows of function `fde` of an image's table; if they repeat, those of the first
/// block.
pub fn compile_unit(table: &Table<'_>, fde: &Fde, image: &Image, cache: &mut Cache) -> UnitId {
    compile(table, fde, Block::of(fde, image, fde.start), cache)
}

/// The maximum number of blocks of a function that [`compile_blocks`] compiles.
const BLOCKS_MAX: usize = 1 << 16;

/// Compiles all rows of function `fde` of an image's table: one unit, or, if its rows repeat
/// (`PCMASK`), one for each block. Blocks beyond the 65,536th are left out.
pub fn compile_blocks(
    table: &Table<'_>,
    fde: &Fde,
    image: &Image,
    cache: &mut Cache,
) -> Vec<UnitId> {
    let mut units = Vec::new();
    let mut at = fde.start;
    while units.len() < BLOCKS_MAX && (fde.contains(at) || units.is_empty()) {
        let block = Block::of(fde, image, at);
        let end = block.range.end;
        units.push(compile(table, fde, block, cache));
        if end <= at {
            break;
        }
        at = end;
    }
    units
}

fn find_row(
    table: &Table<'_>,
    fde: &Fde,
    image: &Image,
    svma: u64,
    cache: &mut Cache,
) -> Result<RowId, Reason> {
    let block = Block::of(fde, image, svma);
    let unit = match cache.unit(&block.key) {
        Some(known) => known?,
        // Most functions are asked for only one row.
        None => match compile_row(table, fde, &block, svma, cache) {
            Some(unit) => unit,
            None => compile(table, fde, block, cache),
        },
    };
    let unit = if cache.knows(unit, svma) {
        unit
    } else {
        compile(table, fde, Block::of(fde, image, svma), cache)
    };
    cache.find_row(unit, svma)
}

/// A row as read: its first address, its offset in the section, and its contents.
type LocatedRow = (u64, u64, SframeRow);

/// Reads the rows of `fde` in `block` up to the first one after `svma` and returns its start, then
/// the first malformed address with the reason. That address is the start of a malformed row or, if
/// the start cannot be read or trusted, the start of the row before it, whose end is then unknown.
fn scan(
    table: &Table<'_>,
    fde: &Fde,
    block: &Range<u64>,
    svma: u64,
    mut each: impl FnMut(LocatedRow),
) -> (Option<u64>, Option<(u64, Reason)>) {
    let mut last = None;

    for fre in table.fres(fde) {
        // Where the row before starts: if this one's start is unknown, so is the end of that one.
        let from = last.unwrap_or(block.start);
        let fre = match fre {
            Ok(fre) => fre,
            Err(error) => return (None, Some((from, error.into()))),
        };

        let start = block.start.saturating_add(fre.start.into());
        // A row past the end covers nothing; some assemblers write one there.
        if start >= block.end {
            break;
        }

        // Without order it is unknown where the row before this one ends.
        if last.is_some_and(|last| start <= last) {
            let error = Malformed::new(fre.offset, "row starts do not increase");
            return (None, Some((from, error.into())));
        }

        // The start of the next row ends the one that was asked for; the rest need not be read.
        if start > svma {
            return (Some(start), None);
        }
        match SframeRow::decode(table.header(), fde, &fre) {
            Ok(row) => each((start, fre.offset, row)),
            Err(error) => return (None, Some((start, error.into()))),
        }

        last = Some(start);
    }

    (None, None)
}

/// Compiles only the row for `svma`; `None` if that takes more than reading up to it.
fn compile_row(
    table: &Table<'_>,
    fde: &Fde,
    block: &Block,
    svma: u64,
    cache: &mut Cache,
) -> Option<UnitId> {
    let mut last = None;
    let (next, error) = scan(table, fde, &block.range, svma, |row| last = Some(row));
    let (start, offset, row) = last?;
    if error.is_some() {
        return None;
    }
    let end = block.range.end;
    let mut unit = cache.begin_unit(block.key, block.range.clone());
    unit.push(NewRow {
        start,
        offset,
        rule: row.rule(table.header(), fde.signal),
    });
    Some(unit.finish_part(start..next.unwrap_or(end)))
}

/// Compiles all rows of a block into the cache.
fn compile(table: &Table<'_>, fde: &Fde, block: Block, cache: &mut Cache) -> UnitId {
    let Block { key, range } = block;
    let header = table.header();
    let mut unit = cache.begin_unit(key, range.clone());

    if fde.num_fres == 0 {
        // The implicit row of a function without rows is not stored.
        return match table.rows(fde).next() {
            Some(Ok(row)) => {
                unit.push(NewRow {
                    start: range.start,
                    offset: row.offset,
                    rule: row.rule,
                });
                unit.finish(None)
            }
            Some(Err(error)) => unit.finish(Some((range.start, error.into()))),
            None => unit.finish(None),
        };
    }

    // With the highest address, no row stops the scan.
    let (_, error) = scan(table, fde, &range, u64::MAX, |(start, offset, row)| {
        let rule = row.rule(header, fde.signal);
        unit.push(NewRow {
            start,
            offset,
            rule,
        });
    });

    unit.finish(error)
}

impl Finder for Sframe {
    fn name(&self) -> &str {
        self.profile.unwinder()
    }

    fn lookup(&self) -> Lookup {
        self.profile.lookup()
    }

    fn carries(&self) -> RegMask {
        RegMask::FRAME
    }

    fn find(&self, mapping: &Mapping, svma: u64, cache: &mut Cache) -> Result<RowId, Reason> {
        let Some(image) = mapping.image.as_deref() else {
            return Err(Reason::NoImage { pc: svma });
        };
        let has_table = image.section(SectionKind::Sframe).is_some();
        let row = match self.tables {
            Tables::Real => self.find_real(image, svma, cache),
            Tables::RealOrDerived if has_table => self.find_real(image, svma, cache),
            Tables::RealOrDerived | Tables::Derived => {
                derived::find::<SframeV3>(image, svma, cache)
            }
        }?;
        let offset = || cache.source(row).row_offset;
        self.profile.check_cfa(cache.rule(row), offset)?;
        Ok(row)
    }

    /// V1 has no row for a root. V2 got one with its second errata, but a file does not state
    /// whether it follows them.
    fn marks_roots(&self, space: &AddressSpace, address: u64, cache: &mut Cache) -> bool {
        let image = space.find(address).and_then(|m| m.image.as_deref());
        let Some(image) = image.filter(|_| self.tables != Tables::Derived) else {
            return true;
        };
        let index = cache.index(image.id(), TableKind::Sframe, || Index::new(image));
        !matches!(&*index, Ok(Some(index)) if index.header.version != Version::V3)
    }

    fn permits(&self, rule: &Rule, topmost: bool) -> Result<(), Reason> {
        self.profile.permits(rule, topmost)
    }
}

#[cfg(test)]
mod tests;
