//! A table's functions and rows, whatever its format.

use crate::file::File;
use std::ops::Range;
use unwind_sim_unwind::cache::{Cache, NewRow, RowId, UnitId, UnitKey};
use unwind_sim_unwind::dwarf;
use unwind_sim_unwind::image::{Bytes, Image, SectionKind};
use unwind_sim_unwind::orc::{self, Encoding};
use unwind_sim_unwind::reason::Reason;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::rule::Rule;
use unwind_sim_unwind::sframe;

/// The tables that a file can have.
pub const KINDS: [TableKind; 4] = [
    TableKind::EhFrame,
    TableKind::DebugFrame,
    TableKind::Sframe,
    TableKind::Orc,
];

/// The maximum number of tables behind the first one in a section that are read.
const BEHIND_MAX: usize = 64;

/// The number of the block of replaced rows, so that they do not take the place of those read.
const REPLACED: u32 = u32::MAX;

/// What the table says of one function: an FDE. ORC has no functions; a piece of its table stands
/// for one.
#[derive(Clone, Debug)]
pub struct Function {
    /// The addresses (svma) that it covers.
    pub range: Range<u64>,
    /// Offset of the FDE in its section, bytes.
    pub offset: u64,
    /// The address (svma) of its language-specific data.
    pub lsda: Option<u64>,
    /// The first address (svma) whose row cannot be read, and why.
    pub error: Option<(u64, Reason)>,
    unit: UnitId,
}

/// A row of a table, with its rule.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The first address (svma).
    pub start: u64,
    /// The first address (svma) after it.
    pub end: u64,
    /// Offset in the section of what made the row (CFI instruction, FRE, ORC entry), bytes.
    pub offset: u64,
    /// What it says. DWARF expressions in it are ranges of [`Table::section`].
    pub rule: &'a Rule,
}

/// All rows of a table.
#[derive(Debug)]
pub struct Table {
    kind: TableKind,
    section: Bytes,
    address: u64,
    /// Offset of `section` in the file's section, bytes.
    base: u64,
    cache: Cache,
    functions: Vec<Function>,
    problems: Vec<Reason>,
}

impl Table {
    /// The table of this kind in `file`; `None` if it has none. An FDE that cannot be read is in
    /// [`Table::problems`].
    pub fn read(file: &File, kind: TableKind) -> Option<Table> {
        Self::read_as(file, kind, None)
    }

    /// Like [`Table::read`], with ORC entries in `encoding` instead of the detected one.
    pub fn read_as(file: &File, kind: TableKind, encoding: Option<Encoding>) -> Option<Table> {
        let image: &Image = file.image();
        let section = image.section(kind.section()?)?;
        let mut table = Table {
            kind,
            section: section.data.clone(),
            address: section.address,
            base: 0,
            cache: Cache::new(),
            functions: Vec::new(),
            problems: Vec::new(),
        };
        match kind {
            TableKind::EhFrame | TableKind::DebugFrame => table.read_dwarf(image),
            TableKind::Sframe => table.read_sframe(image),
            TableKind::Orc => table.read_orc(image, encoding),
            _ => return None,
        }
        table.functions.sort_by_key(|f| (f.range.start, f.offset));

        // Nothing more is read, and lists that grew have up to twice the memory that they need.
        table.functions.shrink_to_fit();
        table.cache.shrink_to_fit();
        Some(table)
    }

    fn read_dwarf(&mut self, image: &Image) {
        for unit in dwarf::units(image, self.kind) {
            let read = unit.and_then(|unit| {
                let id = dwarf::compile_unit(image, self.kind, unit.offset, &mut self.cache)?;
                Ok((id, unit.offset, unit.lsda))
            });
            match read {
                Ok((id, offset, lsda)) => self.add(id, offset, lsda),
                Err(reason) => self.problems.push(reason),
            }
        }
    }

    fn read_sframe(&mut self, image: &Image) {
        let Some(section) = image.section(SectionKind::Sframe) else {
            return;
        };
        // binutils 2.45 puts a section of no bytes into start files: a table without functions.
        if section.data.is_empty() {
            return;
        }
        let table = match sframe::Table::parse(&section.data, section.address) {
            Ok(table) => table,
            Err(error) => return self.problems.push(error.into()),
        };
        self.add_sframe(&table, image);
        let unread = table.behind();
        self.problems.extend(unread.map(Reason::from));
    }

    fn add_sframe(&mut self, table: &sframe::Table<'_>, image: &Image) {
        for fde in table.fdes() {
            match fde {
                Ok(fde) => {
                    for unit in sframe::compile_blocks(table, &fde, image, &mut self.cache) {
                        self.add(unit, fde.offset, None);
                    }
                }
                Err(error) => self.problems.push(error.into()),
            }
        }
    }

    /// The SFrame tables behind the first one, which a linker that does not know the format leaves in one
    /// section. No reader finds them. Only those are read whose functions say where they are by
    /// themselves.
    pub fn behind(file: &File) -> Vec<Table> {
        let image: &Image = file.image();
        let mut found = Vec::new();
        let Some(section) = image.section(SectionKind::Sframe) else {
            return found;
        };

        // One table behind the other: each ends where its own header says.
        let mut at = 0;
        for number in 0..=BEHIND_MAX {
            let Some(data) = section.data.part(at..section.data.len()) else {
                break;
            };

            let base = at as u64;
            let address = section.address.wrapping_add(base);
            let Ok(inner) = sframe::Table::parse(&data, address) else {
                break;
            };

            let tail = inner.tail();
            let padding = tail.iter().position(|byte| *byte != 0);

            // Linkers align sections with zeros, so the next table begins at the first other byte.
            at += data.len() - tail.len() + padding.unwrap_or(tail.len());

            // The first table is the one that every reader finds.
            if number > 0 && inner.header().has(sframe::FLAG_FUNC_START_PCREL) {
                let mut table = Table {
                    kind: TableKind::Sframe,
                    section: data.clone(),
                    address,
                    base,
                    cache: Cache::new(),
                    functions: Vec::new(),
                    problems: Vec::new(),
                };
                table.add_sframe(&inner, image);
                table.functions.sort_by_key(|f| (f.range.start, f.offset));
                found.push(table);
            }
        }
        found
    }

    fn read_orc(&mut self, image: &Image, encoding: Option<Encoding>) {
        match orc::compile_all(image, encoding, &mut self.cache) {
            Ok(units) => {
                for unit in units {
                    self.add(unit, 0, None);
                }
            }
            Err(error) => self.problems.push(error.into()),
        }
    }

    fn add(&mut self, unit: UnitId, offset: u64, lsda: Option<u64>) {
        self.functions.push(Function {
            range: self.cache.unit_range(unit),
            offset: offset + self.base,
            lsda,
            error: self.cache.unit_error(unit),
            unit,
        });
    }

    /// Replaces the rows of function `number` of [`Table::functions`], and the addresses that it
    /// covers, which must start where they did. Returns the function as it was, for
    /// [`Table::restore`]; `None` if there is no such function.
    pub(crate) fn replace(
        &mut self,
        number: usize,
        range: Range<u64>,
        rows: &[NewRow],
    ) -> Option<Function> {
        let function = self.functions.get_mut(number)?;
        let former = function.clone();
        let key = UnitKey {
            table: self.kind,
            image: None,
            offset: function.offset,
            block: REPLACED,
        };
        function.unit = self
            .cache
            .add_unit(key, range.clone(), rows.iter().copied(), None);
        function.range = range;
        Some(former)
    }

    /// Undoes [`Table::replace`].
    pub(crate) fn restore(&mut self, number: usize, former: Function) {
        if let Some(function) = self.functions.get_mut(number) {
            *function = former;
        }
    }

    /// The kind of table.
    pub fn kind(&self) -> TableKind {
        self.kind
    }

    /// The section's bytes; the expressions of rules are ranges of them.
    pub fn section(&self) -> &[u8] {
        &self.section
    }

    /// The section's address (svma).
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The functions, by address.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// What could not be read.
    pub fn problems(&self) -> &[Reason] {
        &self.problems
    }

    /// The rows of a function of this table, by address.
    pub fn rows(&self, function: &Function) -> impl ExactSizeIterator<Item = Row<'_>> + use<'_> {
        self.cache.unit_rows(function.unit).map(|id| self.row(id))
    }

    fn row(&self, id: RowId) -> Row<'_> {
        let source = self.cache.source(id);
        Row {
            start: source.start,
            end: source.end,
            offset: source.row_offset + self.base,
            rule: self.cache.rule(id),
        }
    }

    /// The rows for the addresses in `range` (svma), by address, cut to it: those that a reader finds, see
    /// [`Table::function_at`].
    pub fn rows_in(&self, range: &Range<u64>) -> Vec<Row<'_>> {
        let after = self
            .functions
            .partition_point(|f| f.range.start <= range.start);
        let functions = &self.functions[after.saturating_sub(1)..];
        let mut rows: Vec<Row<'_>> = Vec::new();

        // The last function that starts at or before the range may reach into it.
        for (at, function) in functions.iter().enumerate() {
            if function.range.start >= range.end {
                break;
            }

            let error = function.error.as_ref().map_or(u64::MAX, |e| e.0);
            // A search ends at the next function from its start on, also behind that one's end.
            let next = functions.get(at + 1).map_or(u64::MAX, |f| f.range.start);
            let end = range.end.min(error).min(next);

            // A row holds up to the next one, which may be behind the range.
            let all = self.rows(function);
            rows.reserve(all.len());
            let cut = all.map(|row| Row {
                start: row.start.max(range.start),
                end: row.end.min(end),
                ..row
            });
            rows.extend(cut.filter(|row| row.start < row.end));
        }
        rows
    }

    /// The function that covers `address` (svma): the last one that starts at or before it, if it
    /// reaches that far, as readers that search a sorted table find it.
    pub fn function_at(&self, address: u64) -> Option<&Function> {
        let after = self.functions.partition_point(|f| f.range.start <= address);
        let function = self.functions.get(after.checked_sub(1)?)?;
        function.range.contains(&address).then_some(function)
    }

    /// The row for `address` (svma).
    pub fn row_at(&self, address: u64) -> Option<Row<'_>> {
        let function = self.function_at(address)?;
        let row = self.cache.find_row(function.unit, address).ok()?;
        Some(self.row(row))
    }
}
