//! The DWARF unwinder: finds the FDE of an address and compiles it into the cache.

use super::index::{Entries, Header, Sorted, Units};
use super::program::{CfaProgram, Common};
use super::read::{EntryHeader, Fde, Table};
use crate::cache::{Cache, RowId, SingleRow, UnitBuilder, UnitId, UnitKey};
use crate::finder::Finder;
use crate::image::{Image, Mapping};
use crate::reason::Reason;
use crate::regs::RegMask;
use crate::row::TableKind;
use crate::rule::{Rule, RuleKey};
use alloc::sync::Arc;
use core::ops::Range;

/// A finder that reads `.eh_frame` (using `.eh_frame_hdr` if present), and `.debug_frame` for
/// addresses that `.eh_frame` does not cover.
#[derive(Clone, Copy, Debug)]
pub struct Dwarf {
    carries: RegMask,
}

impl Dwarf {
    /// Carries the callee-saved registers, as the tables expect.
    pub const fn new() -> Dwarf {
        Dwarf::carrying(RegMask::CALLEE_SAVED)
    }

    /// Carries `mask`, which must contain rip and rsp. With [`RegMask::FRAME`] it behaves like
    /// profilers that keep only ip, sp and bp.
    pub const fn carrying(mask: RegMask) -> Dwarf {
        Dwarf { carries: mask }
    }
}

impl Default for Dwarf {
    fn default() -> Self {
        Self::new()
    }
}

impl Finder for Dwarf {
    fn name(&self) -> &str {
        "dwarf"
    }

    fn carries(&self) -> RegMask {
        self.carries
    }

    fn find(&self, mapping: &Mapping, svma: u64, cache: &mut Cache) -> Result<RowId, Reason> {
        let Some(image) = &mapping.image else {
            return Err(Reason::NoImage { pc: svma });
        };
        let mut missing = Reason::NoTable { pc: svma };
        for kind in [TableKind::EhFrame, TableKind::DebugFrame] {
            let Some(table) = Table::of(image, kind) else {
                continue;
            };
            match find_in(image, &table, svma, cache) {
                Err(Reason::NoRow { .. }) => missing = Reason::NoRow { pc: svma },
                found => return found,
            }
        }
        Err(missing)
    }
}

fn find_in(
    image: &Image,
    table: &Table<'_>,
    svma: u64,
    cache: &mut Cache,
) -> Result<RowId, Reason> {
    let offset = locate(image, table, svma, cache)?;
    let key = key(image, table, offset);
    let unit = match cache.unit(&key).transpose()? {
        Some(unit) if cache.knows(unit, svma) => unit,
        Some(unit) => {
            let part = cache.next_part(unit, svma);
            make(table, key, part, &mut UnchangedRows, cache)?
        }
        None => make(
            table,
            key,
            Some(SingleRow::first(svma)),
            &mut UnchangedRows,
            cache,
        )?,
    };
    cache.find_row(unit, svma)
}

/// The offset of the only FDE that may cover `svma`.
fn locate(image: &Image, table: &Table<'_>, svma: u64, cache: &mut Cache) -> Result<u64, Reason> {
    let header = match table.kind {
        TableKind::EhFrame => Header::of(image, table),
        _ => None,
    };
    match header {
        Some(header) => header.find(svma).ok_or(Reason::NoRow { pc: svma }),
        None => {
            let make = || Sorted::new(Units::new(Some(*table)));
            cache.index(image.id(), table.kind, make).find(svma)
        }
    }
}

/// Adds the rows of functions to a unit in the cache.
pub(crate) trait Transcribe {
    /// Adds the row or rows for these addresses (svma). The original row was made at `offset` in
    /// the section; its rule is returned by `rule` and has the short form `key`.
    fn row(
        &mut self,
        unit: &mut UnitBuilder<'_>,
        addresses: Range<u64>,
        offset: u64,
        key: Option<RuleKey>,
        rule: impl FnOnce() -> Rule,
    );

    /// Called when all rows of a function have been added to `unit`.
    fn complete(&mut self, unit: UnitId, cache: &mut Cache);
}

/// Adds every row unchanged.
struct UnchangedRows;

impl Transcribe for UnchangedRows {
    #[inline]
    fn row(
        &mut self,
        unit: &mut UnitBuilder<'_>,
        addresses: Range<u64>,
        offset: u64,
        key: Option<RuleKey>,
        rule: impl FnOnce() -> Rule,
    ) {
        unit.push_short(addresses.start, offset, key, rule);
    }

    fn complete(&mut self, _: UnitId, _: &mut Cache) {}
}

/// An FDE of `.eh_frame`.
#[derive(Clone, Copy)]
pub(crate) struct FdePlace<'a> {
    table: Table<'a>,
    /// Offset in the section, bytes.
    pub(crate) offset: u64,
}

impl<'a> FdePlace<'a> {
    /// The only FDE that may cover `svma`.
    #[inline(always)]
    pub(crate) fn find(image: &'a Image, svma: u64, cache: &mut Cache) -> Result<Self, Reason> {
        let missing = Reason::NoTable { pc: svma };
        let table = Table::of(image, TableKind::EhFrame).ok_or(missing)?;
        let offset = locate(image, &table, svma, cache)?;
        Ok(FdePlace { table, offset })
    }

    /// The section's bytes.
    pub(crate) fn section(&self) -> &'a [u8] {
        self.table.data
    }

    /// Compiles its rows with `rows` into a unit: all of them, or one.
    pub(crate) fn compile(
        &self,
        key: UnitKey,
        part: Option<SingleRow>,
        rows: &mut impl Transcribe,
        cache: &mut Cache,
    ) -> Result<UnitId, Reason> {
        make(&self.table, key, part, rows, cache)
    }
}

/// The complete FDE at `key.offset`, from the cache or compiled into it.
fn compile(table: &Table<'_>, key: UnitKey, cache: &mut Cache) -> Result<UnitId, Reason> {
    match cache.unit(&key).transpose()? {
        Some(unit) if cache.is_complete(unit) => Ok(unit),
        _ => make(table, key, None, &mut UnchangedRows, cache),
    }
}

/// Compiles the FDE at `key.offset`: all of it, or one row.
fn make(
    table: &Table<'_>,
    key: UnitKey,
    part: Option<SingleRow>,
    rows: &mut impl Transcribe,
    cache: &mut Cache,
) -> Result<UnitId, Reason> {
    let unit = try_make(table, key, part, rows, cache);
    if let Err(reason) = unit {
        cache.add_failed_unit(key, reason);
    }
    unit
}

fn try_make(
    table: &Table<'_>,
    key: UnitKey,
    part: Option<SingleRow>,
    rows: &mut impl Transcribe,
    cache: &mut Cache,
) -> Result<UnitId, Reason> {
    let start = usize::try_from(key.offset).unwrap_or(usize::MAX);

    // The fast form takes nearly every entry; the full one takes the rest, or says what is wrong.
    let entry = match table.usual_entry(start) {
        Some(entry) => entry,
        None => table.fde_entry(start)?,
    };

    let at = table.cie_of(&entry)?;
    let cie_key = UnitKey {
        table: table.kind,
        offset: at as u64,
        ..key
    };

    // Taken out of the cache while the program runs on it, and put back at the end.
    let known = cache.take_common(&cie_key);
    let parsed;
    let cie = match &known {
        Some(known) => &known.cie,
        None => {
            parsed = table.cie(at)?;
            &parsed
        }
    };

    let fde = match table.usual_fde(&entry, cie) {
        Some(fde) => fde,
        None => table.fde(entry, cie)?,
    };

    // Before anything runs: the table may not cost more than its length allows.
    let length = fde.program.len() + cie.program.len();
    spend(table, start, length, key, cache)?;

    let common = match known {
        Some(known) => known,
        None => {
            let common = Arc::new(Common::new(*table, cie.clone())?);
            cache.add_common(cie_key, common.clone());
            common
        }
    };

    let mut program = CfaProgram::new(*table, common);
    // If the row of the address cannot be made alone, the whole function is compiled.
    let part = part.and_then(|part| run_to(&mut program, &fde, part, key, rows, cache));
    let unit = part.unwrap_or_else(|| run(&mut program, &fde, key, rows, cache));

    // Consecutive functions usually share their CIE.
    cache.put_common(cie_key, program.into_common());
    Ok(unit)
}

/// The limit for the total length of a table's programs, as a multiple of the section's length.
/// Each FDE counts up to three times (two parts, then whole), each time with its CIE. Valid tables
/// stay below half of the limit. Without it, entries that overlap or share one huge CIE would cause
/// endless work.
const WORK_MAX: u64 = 32;

/// Programs of up to this many bytes are not counted; a walk cannot run enough of them to notice.
const FREE: usize = 512;

/// Counts the work of running `length` bytes of instructions for the entry at `offset`. Fails if it
/// exceeds what any valid table needs.
#[inline]
fn spend(
    table: &Table<'_>,
    offset: usize,
    length: usize,
    key: UnitKey,
    cache: &mut Cache,
) -> Result<(), Reason> {
    let max = WORK_MAX * table.data.len() as u64;
    if length <= FREE || cache.spend(&key, length as u64) <= max {
        Ok(())
    } else {
        Err(table.malformed(offset, "the table's entries overlap too much"))
    }
}

fn key(image: &Image, table: &Table<'_>, offset: u64) -> UnitKey {
    UnitKey {
        table: table.kind,
        image: Some(image.id()),
        offset,
        block: 0,
    }
}

/// Runs the FDE's instructions into the cache.
fn run(
    program: &mut CfaProgram<'_>,
    fde: &Fde,
    key: UnitKey,
    rows: &mut impl Transcribe,
    cache: &mut Cache,
) -> UnitId {
    let mut unit = cache.begin_unit(key, fde.range.clone());
    if let Some(unit) = unit.already() {
        return unit;
    }
    program.begin(fde);
    while let Some(row) = program.next_row() {
        let addresses = row.start..row.end;
        rows.row(&mut unit, addresses, row.offset, program.key(), || {
            program.rule()
        });
    }
    let unit = unit.finish(program.error());
    rows.complete(unit, cache);
    unit
}

/// Runs the FDE's instructions up to the row of `part` and adds only that row to the cache. The
/// first walk through a function usually needs only one of its rows.
fn run_to(
    program: &mut CfaProgram<'_>,
    fde: &Fde,
    part: SingleRow,
    key: UnitKey,
    rows: &mut impl Transcribe,
    cache: &mut Cache,
) -> Option<UnitId> {
    program.begin(fde);
    let row = program.row_past(part.svma)?;
    let addresses = row.start..row.end;
    if !addresses.contains(&part.svma) {
        return None;
    }
    let mut unit = cache.begin_part(key, fde.range.clone(), part.first);
    rows.row(
        &mut unit,
        addresses.clone(),
        row.offset,
        program.key(),
        || program.rule(),
    );
    Some(unit.finish_part(addresses))
}

/// The table of this kind, if it is DWARF and the image has one.
fn table(image: &Image, kind: TableKind) -> Option<Table<'_>> {
    let reads = matches!(kind, TableKind::EhFrame | TableKind::DebugFrame);
    Table::of(image, kind).filter(|_| reads)
}

/// All FDEs of `image`'s table of this kind, in section order. Empty for kinds other than `EhFrame`
/// and `DebugFrame`.
pub fn units(image: &Image, kind: TableKind) -> Units<'_> {
    Units::new(table(image, kind))
}

/// The offset in `.eh_frame` of an FDE that covers `svma` although a search ends elsewhere: an
/// `.eh_frame_hdr` that is not sorted or not complete, or an empty FDE at the same address. `None`
/// if the search finds it, or there is no such FDE.
pub fn unfound(image: &Image, svma: u64) -> Option<u64> {
    let table = Table::of(image, TableKind::EhFrame)?;
    let found = match Header::of(image, &table) {
        Some(header) => header.find(svma),
        None => Sorted::new(Units::new(Some(table))).find(svma).ok(),
    };
    let covering = units(image, TableKind::EhFrame).flatten();
    let mut covering = covering.filter(|unit| unit.range.contains(&svma));
    let first = covering.next()?.offset;
    let is_found = found == Some(first) || covering.any(|unit| found == Some(unit.offset));
    (!is_found).then_some(first)
}

/// The FDE at `offset` of the table, compiled into `cache` if necessary.
///
/// Fails with [`Reason::NoTable`] if there is no such table, and with [`Reason::MalformedRow`] if
/// the FDE or its CIE cannot be read. An error in its instructions is in [`Cache::unit_error`].
pub fn compile_unit(
    image: &Image,
    kind: TableKind,
    offset: u64,
    cache: &mut Cache,
) -> Result<UnitId, Reason> {
    let missing = Reason::NoTable { pc: 0 };
    let table = table(image, kind).ok_or(missing)?;
    compile(&table, key(image, &table, offset), cache)
}

/// The result of [`compile_all`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Compiled {
    /// FDEs compiled.
    pub units: usize,
    /// Rows compiled.
    pub rows: usize,
    /// FDEs that could not be compiled, or are malformed from some address on.
    pub malformed: usize,
}

/// Length of the shortest FDE, bytes: length, CIE pointer, then an address and a length of two
/// bytes each.
const FDE_LEN_MIN: usize = 12;

/// Compiles the whole table into `cache`.
pub fn compile_all(image: &Image, kind: TableKind, cache: &mut Cache) -> Compiled {
    compile_all_as(image, kind, kind, &mut UnchangedRows, cache)
}

/// Like [`compile_all`], but into the units of another table, as translated by `rows`.
pub(crate) fn compile_all_as(
    image: &Image,
    kind: TableKind,
    made: TableKind,
    rows: &mut impl Transcribe,
    cache: &mut Cache,
) -> Compiled {
    let mut compiled = Compiled::default();
    let Some(table) = table(image, kind) else {
        return compiled;
    };

    if let Some(header) = Header::of(image, &table) {
        // The header's count is input; the section's length bounds what is reserved.
        let most = table.data.len() / FDE_LEN_MIN;
        cache.reserve_units(header.len().min(most));
    }

    let mut program: Option<CfaProgram<'_>> = None;
    let mut entries = Entries::new(table);
    for entry in entries.by_ref() {
        let key = UnitKey {
            table: made,
            ..key(image, &table, entry.offset as u64)
        };

        // Neighbouring FDEs share their CIE, so its program is kept.
        let fde = match &program {
            Some(program) if table.has_cie(&entry, program.cie()) => {
                table.usual_fde(&entry, program.cie())
            }
            _ => None,
        };

        // Errors are made elsewhere, so that this loop keeps its values in registers.
        let fde = match fde {
            Some(fde) => fde,
            None => match any_fde(table, entry, key, &mut program, cache) {
                Ok(fde) => fde,
                Err(_) => {
                    compiled.malformed += 1;
                    continue;
                }
            },
        };

        if let Some(program) = &mut program {
            let id = run(program, &fde, key, rows, cache);
            compiled.units += 1;
            compiled.rows += cache.unit_rows(id).len();
            compiled.malformed += usize::from(cache.unit_error(id).is_some());
        }
    }

    // An entry with a damaged length hides all that follow; it counts as one.
    compiled.malformed += usize::from(entries.error().is_some());
    compiled
}

/// The FDE with the header `entry`, and in `program` the program of its CIE.
#[inline(never)]
fn any_fde<'a>(
    table: Table<'a>,
    entry: EntryHeader<'a>,
    key: UnitKey,
    program: &mut Option<CfaProgram<'a>>,
    cache: &mut Cache,
) -> Result<Fde, Reason> {
    let at = table.cie_of(&entry)?;
    let program = match program {
        Some(known) if known.cie().offset == at => known,
        _ => {
            let cie = table.cie(at)?;
            spend(&table, at, cie.program.len(), key, cache)?;
            let common = Arc::new(Common::new(table, cie)?);
            program.insert(CfaProgram::new(table, common))
        }
    };
    table.fde(entry, program.cie())
}
