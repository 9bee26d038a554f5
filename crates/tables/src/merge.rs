//! Merges several SFrame tables in one section into one sorted table: [`merge`].
//!
//! A linker that does not know the format puts the `.sframe` sections of its inputs one after the
//! other. Readers then find only the first table, up to the end of its own header's counts.
//!
//! A start that is relative to its own field ([`FLAG_FUNC_START_PCREL`]) stays right wherever the
//! table goes. Without that flag, a start is relative to the section, but what such a linker leaves
//! may be relative to the section, to the table, or to the field, depending on what the assembler
//! wrote. The one is taken by which most functions start where code is and, if the file has an
//! `.eh_frame`, where one of its functions starts.

use crate::elf_write::{Editor, ElfWriteError};
use crate::file::File;
use crate::table::Table as AnyTable;
use crate::write::sframe::{PT_GNU_SFRAME, Row, SframeWriter};
use crate::write::{Function, NewSection, WriteError, Writer};
use std::collections::HashSet;
use unwind_sim_unwind::image::SectionKind;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::sframe::{FLAG_FUNC_START_PCREL, Fde, Malformed, SframeRow, Table, Version};

/// The maximum number of tables in a section: more than any program has object files.
pub const TABLES_MAX: usize = 1 << 17;

/// Why tables cannot be merged.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// The file has no `.sframe`.
    #[error("{file} has no .sframe section")]
    NoTable {
        /// The file's name.
        file: String,
    },
    /// A table or row cannot be read.
    #[error("{file}: .sframe+{offset:#x} (table {table}): {what}")]
    Malformed {
        /// The file's name.
        file: String,
        /// The number of the table, from 0.
        table: usize,
        /// Offset in the section, bytes.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// There are too many tables.
    #[error("{file}: .sframe holds more than {TABLES_MAX} tables")]
    TooManyTables {
        /// The file's name.
        file: String,
    },
    /// A row does not fit the version of the merged table.
    #[error("{file}: .sframe+{offset:#x}: {what}")]
    Row {
        /// The file's name.
        file: String,
        /// Offset of the FDE in the section, bytes.
        offset: u64,
        /// What does not fit.
        what: &'static str,
    },
    /// A limit of the format was exceeded.
    #[error("{file}: {error}")]
    Write {
        /// The file's name.
        file: String,
        /// Which limit of the format was exceeded.
        error: WriteError,
    },
}

/// A merged table.
#[derive(Clone, Debug)]
pub struct Merged {
    /// The new section, with the functions of all tables.
    pub section: NewSection,
    /// Its version: the newest of the tables.
    pub version: Version,
    /// The number of tables found.
    pub tables: usize,
    /// The number of functions written.
    pub functions: usize,
    /// The number of rows written.
    pub rows: u64,
    /// Functions of the first table, which is all that readers found before.
    pub functions_found_before: usize,
    /// Functions left out because another one has the same start and the same rows.
    pub duplicates: u64,
    /// Starts (svma) of functions left out because another one has the same start, but other rows.
    pub conflicts: Vec<u64>,
    /// Functions left out because no code is there (the linker discarded it).
    pub dead: u64,
    /// Functions that lost their end to a function that starts inside.
    pub clipped: u64,
    /// Functions without a row at their start, which say nothing there: they have no rows (V1,
    /// V2), or repeat rows that start later.
    pub empty: u64,
}

#[derive(Clone, PartialEq, Debug)]
struct PendingFunction {
    start: u64,
    size: u32,
    repeat: Option<u8>,
    signal: bool,
    rows: Vec<(u32, Row)>,
}

/// Merges the tables in the `.sframe` of `file` into a section at `address` (svma).
///
/// # Errors
/// If there is no such section, a table is malformed, or a limit of the format is exceeded.
pub fn merge(file: &File, address: u64) -> Result<Merged, MergeError> {
    let name = || file.name().to_owned();
    let section = file.image().section(SectionKind::Sframe);
    let section = section.ok_or_else(|| MergeError::NoTable { file: name() })?;
    let tables = tables(file, &section.data, section.address)?;

    // The highest version: lower ones cannot hold all of its rows.
    let versions = tables.iter().map(|(_, table)| table.header().version);
    let version = versions.max().unwrap_or(Version::V3);
    let mut writer = SframeWriter::new(version);
    let starts = known_starts(file);
    let mut out = Merged {
        section: NewSection {
            name: ".sframe",
            kind: 0,
            address,
            align: 1,
            entry_size: 0,
            program: None,
            bytes: Vec::new(),
        },
        version,
        tables: tables.len(),
        functions: 0,
        rows: 0,
        functions_found_before: tables.first().map_or(0, |t| t.1.header().num_fdes as usize),
        duplicates: 0,
        conflicts: Vec::new(),
        dead: 0,
        clipped: 0,
        empty: 0,
    };

    let mut all = Vec::new();
    for (number, (at, table)) in tables.iter().enumerate() {
        let reading = InputTable {
            file,
            writer: &writer,
            number,
            at: *at,
            table,
        };
        reading.functions(section.address, &starts, &mut all, &mut out)?;
    }

    // The sort is stable: of two functions with one start, that of the earlier table comes first.
    all.sort_by_key(|function| function.start);
    out.resolve(&mut all);

    let write = |error| MergeError::Write {
        file: name(),
        error,
    };

    for function in &all {
        out.functions += 1;
        out.rows += function.rows.len() as u64;
        let function = Function {
            start: function.start,
            size: function.size,
            repeat: function.repeat,
            signal: function.signal,
            rows: &function.rows,
        };
        writer.function(&function).map_err(write)?;
    }

    let sections = writer.finish(address).map_err(write)?;
    if let Some(section) = sections.into_iter().next() {
        out.section = section;
    }
    Ok(out)
}

/// Why no file with a merged table was made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MergeInFileError {
    /// The tables cannot be merged.
    #[error(transparent)]
    Merge(#[from] MergeError),
    /// The file cannot be changed.
    #[error(transparent)]
    Elf(#[from] ElfWriteError),
}

/// The file `data`, which was read as `file`, with a merged table: where the old ones were, if it
/// fits there, as it nearly always does without their headers.
///
/// # Errors
/// If the tables cannot be merged, or the file cannot be changed.
pub fn merge_in_file(file: &File, data: &[u8]) -> Result<(Vec<u8>, Merged), MergeInFileError> {
    let editor = Editor::open(file.name(), data)?;
    if let Some(room) = editor.reusable(".sframe", PT_GNU_SFRAME) {
        let merged = merge(file, room.start)?;
        if merged.section.address == room.start && merged.section.end() <= room.end {
            return Ok((editor.replace(&merged.section)?, merged));
        }
    }
    let merged = merge(file, editor.room())?;
    let bytes = editor.add(std::slice::from_ref(&merged.section))?;
    Ok((bytes, merged))
}

/// The tables in a section: the offset of each in it.
fn tables<'a>(
    file: &File,
    bytes: &'a [u8],
    address: u64,
) -> Result<Vec<(u64, Table<'a>)>, MergeError> {
    let mut found = Vec::new();
    let mut rest = bytes;
    loop {
        let at = (bytes.len() - rest.len()) as u64;
        let table = Table::parse(rest, address.saturating_add(at));
        let table = table.map_err(|error| malformed(file, found.len(), at, error))?;
        rest = table.tail();
        found.push((at, table));

        // Padding to the alignment of the next table, or to the end of the segment.
        let Some(padding) = rest.iter().position(|byte| *byte != 0) else {
            return Ok(found);
        };
        rest = rest.get(padding..).unwrap_or_default();

        if found.len() >= TABLES_MAX {
            return Err(MergeError::TooManyTables {
                file: file.name().to_owned(),
            });
        }
    }
}

fn malformed(file: &File, table: usize, at: u64, error: Malformed) -> MergeError {
    MergeError::Malformed {
        file: file.name().to_owned(),
        table,
        offset: at.saturating_add(error.offset),
        what: error.what,
    }
}

/// The starts of the functions in the file's `.eh_frame`.
fn known_starts(file: &File) -> HashSet<u64> {
    let table = AnyTable::read(file, TableKind::EhFrame);
    let functions = table.iter().flat_map(AnyTable::functions);
    functions.map(|function| function.range.start).collect()
}

/// A table being read.
struct InputTable<'a> {
    file: &'a File,
    writer: &'a SframeWriter,
    number: usize,
    /// Its offset in the section.
    at: u64,
    table: &'a Table<'a>,
}

impl InputTable<'_> {
    fn functions(
        &self,
        section: u64,
        starts: &HashSet<u64>,
        all: &mut Vec<PendingFunction>,
        out: &mut Merged,
    ) -> Result<(), MergeError> {
        let fdes: Result<Vec<Fde>, Malformed> = self.table.fdes().collect();
        let fdes = fdes.map_err(|error| malformed(self.file, self.number, self.at, error))?;
        let moved = self.moved(&fdes, section, starts);

        for fde in &fdes {
            let start = fde.start.wrapping_add(moved.by(fde));
            // The linker discarded its code, and left its entry.
            if !self.file.image().is_text(start) {
                out.dead += 1;
                continue;
            }

            let mut rows = self.rows(fde)?;
            // A table being written has functions that start with a row.
            let skipped = rows.first().map_or(0, |row| row.0);
            // Blocks that repeat cannot be cut off at their start.
            if rows.is_empty() || skipped != 0 && fde.rep_size.is_some() {
                out.empty += 1;
                continue;
            }
            rows.iter_mut().for_each(|row| row.0 -= skipped);

            all.push(PendingFunction {
                start: start.saturating_add(skipped.into()),
                size: fde.size - skipped,
                repeat: fde.rep_size,
                signal: fde.signal,
                rows,
            });
        }
        Ok(())
    }

    /// How far the stored starts are from the real ones.
    fn moved(&self, fdes: &[Fde], section: u64, starts: &HashSet<u64>) -> StartBias {
        if self.table.header().has(FLAG_FUNC_START_PCREL) {
            return StartBias::By(0);
        }
        let score = |moved: &StartBias| {
            let found = fdes.iter().map(|fde| fde.start.wrapping_add(moved.by(fde)));
            let right = |start: &u64| {
                if starts.is_empty() {
                    self.file.image().is_text(*start)
                } else {
                    starts.contains(start)
                }
            };
            found.filter(right).count()
        };
        let to_section = section.wrapping_sub(self.table.address());
        let mut best = StartBias::By(0);
        for candidate in [StartBias::By(to_section), StartBias::ByField] {
            if score(&candidate) > score(&best) {
                best = candidate;
            }
        }
        best
    }

    fn rows(&self, fde: &Fde) -> Result<Vec<(u32, Row)>, MergeError> {
        let mut rows: Vec<(u32, Row)> = Vec::new();
        for row in self.table.rows(fde) {
            let row = row.map_err(|error| malformed(self.file, self.number, self.at, error))?;

            // Some assemblers write a row at the end of the function, which covers nothing.
            if row.start >= fde.row_limit() {
                break;
            }

            let wrong = |what| MergeError::Row {
                file: self.file.name().to_owned(),
                offset: self.at.saturating_add(row.offset),
                what,
            };

            let increases = rows
                .last()
                .map_or(row.start == 0, |last| last.0 < row.start);
            if !increases {
                return Err(wrong("row starts do not increase from 0"));
            }

            // A function without rows is an outermost frame (V2, errata 2): one row that says so.
            let stored = row.row.unwrap_or(SframeRow::RaUndefined);
            let fit = self.writer.fit(stored, fde.signal);
            let fit = fit.map_err(|lost| wrong(lost.description()))?;
            // Rows that differ in the table read may be one in the version written.
            if rows.last().is_none_or(|last| last.1 != fit) {
                rows.push((row.start, fit));
            }
        }
        Ok(rows)
    }
}

/// What to add to the starts of a table.
enum StartBias {
    By(u64),
    /// The offset of the FDE in its table.
    ByField,
}

impl StartBias {
    fn by(&self, fde: &Fde) -> u64 {
        match self {
            StartBias::By(distance) => *distance,
            StartBias::ByField => fde.offset,
        }
    }
}

impl Merged {
    /// Leaves one of several functions with the same start, and cuts functions off where the next
    /// one starts. `all` is sorted by start.
    fn resolve(&mut self, all: &mut Vec<PendingFunction>) {
        let (mut duplicates, mut conflicts) = (0, Vec::new());
        all.dedup_by(|next, kept| {
            if next.start != kept.start {
                return false;
            }
            if next == kept {
                duplicates += 1;
            } else {
                conflicts.push(next.start);
            }
            true
        });

        self.duplicates = duplicates;
        self.conflicts = conflicts;

        // A search ends at the last function that starts before an address, so that no reader finds
        // more.
        let starts: Vec<u64> = all.iter().skip(1).map(|f| f.start).collect();
        for (function, next) in all.iter_mut().zip(starts) {
            let room = u32::try_from(next - function.start).unwrap_or(u32::MAX);
            if function.size > room {
                self.clipped += 1;
                function.size = room;
                function.rows.retain(|row| row.0 < room);
            }
        }

        all.retain(|function| function.size != 0);
    }
}

#[cfg(test)]
mod tests;
