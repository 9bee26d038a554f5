//! The DWARF unwinder: finds the FDE of an address and compiles it into the cache.

use super::index::{Entries, Header, Sorted, Units};
use super::program::CfaProgram;
use super::read::{Fde, Table};
use crate::cache::{Cache, RowId, UnitBuilder, UnitId, UnitKey};
use crate::finder::Finder;
use crate::image::{Image, Mapping};
use crate::reason::Reason;
use crate::regs::RegMask;
use crate::row::TableKind;
use crate::rule::{Key, Rule};
use core::ops::Range;

/// Reads `.eh_frame` (by `.eh_frame_hdr` where there is one), and `.debug_frame` for what that
/// does not cover.
#[derive(Clone, Copy, Debug)]
pub struct Dwarf {
    carries: RegMask,
}

impl Dwarf {
    /// Carries the callee-saved registers, as the tables are written for.
    pub const fn new() -> Dwarf {
        Dwarf::carrying(RegMask::CALLEE_SAVED)
    }

    /// Carries `mask`, which is to hold rip and rsp. With [`RegMask::FRAME`] it does what
    /// profilers do that keep ip, sp and bp only.
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
            match find_in(image, table, svma, cache) {
                Err(Reason::NoRow { .. }) => missing = Reason::NoRow { pc: svma },
                found => return found,
            }
        }
        Err(missing)
    }
}

fn find_in(image: &Image, table: Table<'_>, svma: u64, cache: &mut Cache) -> Result<RowId, Reason> {
    let offset = locate(image, table, svma, cache)?;
    let key = key(image, table, offset);
    let unit = match cache.unit(&key).transpose()? {
        Some(unit) if cache.knows(unit, svma) => unit,
        Some(_) => make(table, key, None, &mut AsTheyAre, cache)?,
        None => make(table, key, Some(svma), &mut AsTheyAre, cache)?,
    };
    cache.find_row(unit, svma)
}

/// The offset of the FDE that holds `svma`, if one does at all.
fn locate(image: &Image, table: Table<'_>, svma: u64, cache: &mut Cache) -> Result<u64, Reason> {
    let header = match table.kind {
        TableKind::EhFrame => Header::of(image, &table),
        _ => None,
    };
    match header {
        Some(header) => header.find(svma).ok_or(Reason::NoRow { pc: svma }),
        None => {
            let make = || Sorted::new(Units::new(Some(table)));
            cache.index(image.id(), table.kind, make).find(svma)
        }
    }
}

/// Puts the rows of functions into the cache.
pub(crate) trait Transcribe {
    /// Adds what stands for a row of these addresses (svma), made at `offset` of the section by
    /// the rule that `rule` gives and whose short form is `key`.
    fn row(
        &mut self,
        unit: &mut UnitBuilder<'_>,
        addresses: Range<u64>,
        offset: u64,
        key: Option<Key>,
        rule: impl FnOnce() -> Rule,
    );

    /// All rows of a function were added to `unit`.
    fn complete(&mut self, unit: UnitId, cache: &mut Cache);
}

/// Every row stands for itself.
struct AsTheyAre;

impl Transcribe for AsTheyAre {
    #[inline]
    fn row(
        &mut self,
        unit: &mut UnitBuilder<'_>,
        addresses: Range<u64>,
        offset: u64,
        key: Option<Key>,
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
    /// Its offset in the section, bytes.
    pub(crate) offset: u64,
}

impl<'a> FdePlace<'a> {
    /// The one that holds `svma`, if one does at all.
    pub(crate) fn find(image: &'a Image, svma: u64, cache: &mut Cache) -> Result<Self, Reason> {
        let missing = Reason::NoTable { pc: svma };
        let table = Table::of(image, TableKind::EhFrame).ok_or(missing)?;
        let offset = locate(image, table, svma, cache)?;
        Ok(FdePlace { table, offset })
    }

    /// The section's bytes.
    pub(crate) fn section(&self) -> &'a [u8] {
        self.table.data
    }

    /// Its rows as `rows` puts them into a new unit: all, or as far as `svma` needs them.
    pub(crate) fn compile(
        &self,
        key: UnitKey,
        svma: Option<u64>,
        rows: &mut impl Transcribe,
        cache: &mut Cache,
    ) -> Result<UnitId, Reason> {
        make(self.table, key, svma, rows, cache)
    }
}

/// The FDE at `key.offset`, whole, out of the cache or compiled into it.
fn compile(table: Table<'_>, key: UnitKey, cache: &mut Cache) -> Result<UnitId, Reason> {
    match cache.unit(&key).transpose()? {
        Some(unit) if cache.is_complete(unit) => Ok(unit),
        _ => make(table, key, None, &mut AsTheyAre, cache),
    }
}

/// Compiles the FDE at `key.offset`: whole, or as far as `svma` needs it.
fn make(
    table: Table<'_>,
    key: UnitKey,
    svma: Option<u64>,
    rows: &mut impl Transcribe,
    cache: &mut Cache,
) -> Result<UnitId, Reason> {
    let start = usize::try_from(key.offset).unwrap_or(usize::MAX);
    let unit = table.entry(start).and_then(|entry| {
        let entry = entry.ok_or(table.malformed(start, "an FDE is expected here"))?;
        let at = table.cie_of(&entry)?;
        let cie_key = UnitKey {
            table: table.kind,
            offset: at as u64,
            ..key
        };
        let known = cache.common(&cie_key).cloned();
        let cie = match &known {
            Some(known) => &known.cie,
            None => &table.cie(at)?,
        };
        let fde = table.fde(entry, cie)?;
        let length = fde.program.len() + cie.program.len();
        spend(table, start, length, key, cache)?;
        let mut program = match known {
            Some(known) => CfaProgram::of(table, known),
            None => {
                let program = CfaProgram::new(table, cie.clone())?;
                cache.add_common(cie_key, program.common());
                program
            }
        };
        let part = svma.and_then(|svma| run_to(&mut program, &fde, svma, key, rows, cache));
        Ok(part.unwrap_or_else(|| run(&mut program, &fde, key, rows, cache)))
    });
    if let Err(reason) = unit {
        cache.add_failed_unit(key, reason);
    }
    unit
}

/// How many times the length of its section a table's programs may add up to, every FDE run twice
/// (in part, then whole) with its CIE. Honest ones stay below a quarter of it; entries that lie in
/// one another, or share one huge CIE, would make work without end.
const WORK_MAX: u64 = 32;

/// Programs of up to so many bytes are not counted; a walk cannot run enough of them to notice.
const FREE: usize = 512;

/// Counts the work of running `length` bytes of instructions for the entry at `offset`, and fails
/// where that is more than any honest table makes.
fn spend(
    table: Table<'_>,
    offset: usize,
    length: usize,
    key: UnitKey,
    cache: &mut Cache,
) -> Result<(), Reason> {
    let max = WORK_MAX * table.data.len() as u64;
    match length <= FREE || cache.spend(&key, length as u64) <= max {
        true => Ok(()),
        false => Err(table.malformed(offset, "the table's entries overlap too much")),
    }
}

fn key(image: &Image, table: Table<'_>, offset: u64) -> UnitKey {
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

/// Runs the FDE's instructions up to the row of `svma`, and puts only that into the cache. Most
/// functions of a first walk are needed in one row, and most walks are first walks somewhere.
fn run_to(
    program: &mut CfaProgram<'_>,
    fde: &Fde,
    svma: u64,
    key: UnitKey,
    rows: &mut impl Transcribe,
    cache: &mut Cache,
) -> Option<UnitId> {
    program.begin(fde);
    loop {
        let row = program.next_row()?;
        let addresses = row.start..row.end;
        if addresses.contains(&svma) {
            let mut unit = cache.begin_unit(key, fde.range.clone());
            rows.row(
                &mut unit,
                addresses.clone(),
                row.offset,
                program.key(),
                || program.rule(),
            );
            return Some(unit.finish_part(addresses));
        }
    }
}

/// The table of that kind, if the image has one and it is DWARF.
fn table(image: &Image, kind: TableKind) -> Option<Table<'_>> {
    let reads = matches!(kind, TableKind::EhFrame | TableKind::DebugFrame);
    Table::of(image, kind).filter(|_| reads)
}

/// All FDEs of `image`'s table of that kind (`EhFrame` or `DebugFrame`; of any other there are
/// none), in the order of the section.
pub fn units(image: &Image, kind: TableKind) -> Units<'_> {
    Units::new(table(image, kind))
}

/// The FDE at `offset` of the table, compiled into `cache` if it is not there yet.
///
/// Fails with [`Reason::NoTable`] without such a table, and with [`Reason::MalformedRow`] if the
/// FDE or its CIE cannot be read. What is malformed within its instructions is in
/// [`Cache::unit_error`].
pub fn compile_unit(
    image: &Image,
    kind: TableKind,
    offset: u64,
    cache: &mut Cache,
) -> Result<UnitId, Reason> {
    let missing = Reason::NoTable { pc: 0 };
    let table = table(image, kind).ok_or(missing)?;
    compile(table, key(image, table, offset), cache)
}

/// What [`compile_all`] made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Compiled {
    /// FDEs compiled.
    pub units: usize,
    /// Their rows.
    pub rows: usize,
    /// FDEs that could not be compiled, or are malformed from some address on.
    pub malformed: usize,
}

/// Bytes of the shortest FDE: its length, its CIE, an address and a length of two bytes each.
const FDE_LEN_MIN: usize = 12;

/// Compiles the whole table into `cache`.
pub fn compile_all(image: &Image, kind: TableKind, cache: &mut Cache) -> Compiled {
    compile_all_as(image, kind, kind, &mut AsTheyAre, cache)
}

/// [`compile_all`] into the units of another table, that which `rows` makes of it.
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
        let most = table.data.len() / FDE_LEN_MIN;
        cache.reserve_units(header.len().min(most));
    }
    let mut program: Option<CfaProgram<'_>> = None;
    for entry in Entries::new(table) {
        let unit = entry.and_then(|entry| {
            let at = table.cie_of(&entry)?;
            let key = UnitKey {
                table: made,
                ..key(image, table, entry.offset as u64)
            };
            if program.as_ref().is_none_or(|p| p.cie().offset != at) {
                let cie = table.cie(at)?;
                spend(table, at, cie.program.len(), key, cache)?;
                program = Some(CfaProgram::new(table, cie)?);
            }
            let missing = table.malformed(at, "no CIE");
            let program = program.as_mut().ok_or(missing)?;
            let fde = table.fde(entry, program.cie())?;
            Ok(run(program, &fde, key, rows, cache))
        });
        match unit {
            Ok(id) => {
                compiled.units += 1;
                compiled.rows += cache.unit_rows(id).len();
                compiled.malformed += usize::from(cache.unit_error(id).is_some());
            }
            Err(_) => compiled.malformed += 1,
        }
    }
    compiled
}
