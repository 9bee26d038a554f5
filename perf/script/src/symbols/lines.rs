//! Source lines of a file, from `.debug_line`.
//!
//! As in libdw (`dwfl_module_getsrc`), an address belongs to the last row at or before it, in the
//! sequence that contains it.

use super::elf::Parts;
use super::helper::{Compression, Helper};
use super::objects::SourceLine;
use gimli::LittleEndian;
use gimli::{AttributeValue, DebugLine, DebugLineOffset, EndianSlice, LineProgramHeader};
use object::Endianness;
use object::elf::{ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD};
use object::read::elf::{CompressionHeader, FileHeader, SectionHeader};
use std::collections::HashMap;
use std::ops::Range;

/// Maximum number of line programs read from a file.
const PROGRAMS_MAX: usize = 1 << 20;
/// Maximum number of sequences kept for a file.
const SEQUENCES_MAX: usize = 1 << 22;
/// Maximum number of rows kept for a file; beyond it, all are dropped and read again when needed.
const ROWS_MAX: usize = 1 << 22;
/// Maximum number of sequences tried for an address: those of functions that the linker dropped
/// overlap.
const TRIED_MAX: usize = 16;
/// Maximum length of a source file's path (`PATH_MAX`); a longer one is no name.
const PATH_BYTES_MAX: usize = 4096;

type Slice<'d> = EndianSlice<'d, LittleEndian>;

/// A sequence of a line program: a range of addresses with ascending rows.
#[derive(Clone, Copy, Debug)]
struct Sequence {
    start: u64,
    end: u64,
    /// Offset of its program in `.debug_line`.
    program: usize,
}

/// A row of a program.
#[derive(Clone, Copy, Debug)]
struct Row {
    address: u64,
    /// Index of the file in the program's header.
    file: u32,
    line: u32,
}

/// The rows of a line program.
#[derive(Debug, Default)]
struct Program {
    rows: Vec<Row>,
    /// The row indices of each sequence, by its start and end address.
    sequences: HashMap<(u64, u64), Range<usize>>,
    files: HashMap<u32, Name>,
}

/// A source file's name, without its folder, in one of the sections. Names are not copied: many
/// files can share one string.
#[derive(Clone, Debug)]
struct Name {
    strings: Strings,
    range: Range<usize>,
}

/// The section that holds a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Strings {
    Line,
    DebugStr,
    LineStr,
}

/// The source lines of a file.
#[derive(Debug, Default)]
pub struct Lines {
    /// Whether the file has source lines.
    is_known: bool,
    line: Vec<u8>,
    strings: Vec<u8>,
    line_strings: Vec<u8>,
    address_size: u8,
    /// Code of the mapped file ([`Parts::code`]).
    code: Vec<(Range<u64>, u64)>,
    /// All sequences, ascending by start.
    sequences: Vec<Sequence>,
    programs: HashMap<usize, Program>,
    /// Number of rows of all `programs`.
    rows: usize,
}

impl Lines {
    /// The lines of the file `mapped`, which has none.
    pub(super) fn none<E: FileHeader<Endian = Endianness>>(mapped: &Parts<'_, E>) -> Self {
        Self {
            code: mapped.code(),
            ..Self::default()
        }
    }

    /// The lines of the file `mapped`, read from `parts`.
    pub(super) fn load<E: FileHeader<Endian = Endianness>>(
        parts: &Parts<'_, E>,
        mapped: &Parts<'_, E>,
        helper: &'static dyn Helper,
    ) -> Self {
        let section = |name| section(parts, name, helper).unwrap_or_default();
        let mut lines = Self {
            is_known: true,
            line: section(b".debug_line"),
            strings: section(b".debug_str"),
            line_strings: section(b".debug_line_str"),
            address_size: if parts.is_64() { 8 } else { 4 },
            code: mapped.code(),
            ..Self::default()
        };
        lines.sequences = lines.find_sequences();
        lines.sequences.sort_unstable_by_key(|s| (s.start, s.end));
        lines
    }

    /// The source line of an offset in the mapped file.
    pub fn at(&mut self, offset: u64) -> SourceLine<'_> {
        let place = self.code.iter().find(|(at, _)| at.contains(&offset));
        let address = place.map_or(offset, |(_, bias)| offset.wrapping_add(*bias));
        if !self.is_known {
            return SourceLine::NoLines { address };
        }
        self.row(address).unwrap_or(SourceLine::Unknown)
    }

    fn row(&mut self, address: u64) -> Option<SourceLine<'_>> {
        let behind = self.sequences.partition_point(|s| s.start <= address);
        let mut before = self.sequences[..behind].iter().rev().take(TRIED_MAX);
        let sequence = *before.find(|s| address < s.end)?;
        if !self.programs.contains_key(&sequence.program) {
            let program = self.read(sequence.program).unwrap_or_default();
            if self.rows.saturating_add(program.rows.len()) > ROWS_MAX {
                self.programs.clear();
                self.rows = 0;
            }
            self.rows += program.rows.len();
            self.programs.insert(sequence.program, program);
        }
        let program = self.programs.get(&sequence.program)?;
        let row = program.row(sequence, address)?;
        let name = program.files.get(&row.file)?;
        let file = self.section(name.strings).get(name.range.clone())?;
        let line = row.line;
        Some(SourceLine::Line { file, line })
    }

    fn section(&self, which: Strings) -> &[u8] {
        match which {
            Strings::Line => &self.line,
            Strings::DebugStr => &self.strings,
            Strings::LineStr => &self.line_strings,
        }
    }

    fn header(&self, offset: usize) -> Option<gimli::IncompleteLineProgram<Slice<'_>>> {
        let section = DebugLine::new(&self.line, LittleEndian);
        let program = section.program(DebugLineOffset(offset), self.address_size, None, None);
        program.ok()
    }

    fn find_sequences(&self) -> Vec<Sequence> {
        let (mut found, mut offset) = (Vec::new(), 0);

        // Bounded, because each header is read to find the next one.
        for _ in 0..PROGRAMS_MAX {
            let Some(program) = self.header(offset) else {
                break;
            };

            let header = program.header();
            let length = header.unit_length();
            // The length of a unit does not count its own field (DWARF 5, 7.5.1).
            let next = usize::from(header.format().initial_length_size()).saturating_add(length);

            let (mut rows, mut start) = (program.rows(), None);
            while let Ok(Some((_, row))) = rows.next_row() {
                let begin = *start.get_or_insert(row.address());
                // A sequence is contiguous code; its last row is behind it (DWARF 5, 6.2.5).
                if row.end_sequence() {
                    start = None;
                    found.push(Sequence {
                        start: begin,
                        end: row.address(),
                        program: offset,
                    });
                }

                // What is behind the limit has no lines, and the rest is used.
                if found.len() >= SEQUENCES_MAX {
                    return found;
                }
            }

            offset = offset.saturating_add(next);
        }

        found
    }

    fn read(&self, offset: usize) -> Option<Program> {
        let program = self.header(offset)?;
        let header = program.header().clone();

        let mut read = Program::default();
        let (mut rows, mut begin) = (program.rows(), 0);
        while let Ok(Some((_, row))) = rows.next_row() {
            if read.rows.len() >= ROWS_MAX {
                break;
            }

            // The last row of a sequence only says where it ends.
            if row.end_sequence() {
                let end = read.rows.len();
                if let Some(first) = read.rows.get(begin) {
                    let addresses = (first.address, row.address());
                    read.sequences.insert(addresses, begin..end);
                }
                begin = end;
                continue;
            }

            let file = u32::try_from(row.file_index()).unwrap_or(u32::MAX);
            // Line 0 is code without a line (DWARF 5, 6.2.2).
            let line = row.line().map_or(0, |line| line.get());
            read.rows.push(Row {
                address: row.address(),
                file,
                line: u32::try_from(line).unwrap_or(u32::MAX),
            });

            // A name is read once for each file, not for each row.
            if let std::collections::hash_map::Entry::Vacant(slot) = read.files.entry(file)
                && let Some(name) = self.file_name(&header, row.file_index())
            {
                slot.insert(name);
            }
        }

        Some(read)
    }

    /// The name of a source file.
    fn file_name(&self, header: &LineProgramHeader<Slice<'_>>, number: u64) -> Option<Name> {
        let (strings, start) = match header.file(number)?.path_name() {
            AttributeValue::String(text) => {
                let section = EndianSlice::new(&self.line, LittleEndian);
                (Strings::Line, text.offset_from(section))
            }
            AttributeValue::DebugStrRef(at) => (Strings::DebugStr, at.0),
            AttributeValue::DebugLineStrRef(at) => (Strings::LineStr, at.0),
            _ => return None,
        };
        let rest = self.section(strings).get(start..)?;
        let rest = &rest[..rest.len().min(PATH_BYTES_MAX)];
        let length = rest.iter().position(|&byte| byte == 0)?;
        let folder = rest[..length].iter().rposition(|&byte| byte == b'/');
        let name = folder.map_or(0, |at| at + 1);
        let range = start + name..start + length;
        Some(Name { strings, range })
    }
}

impl Program {
    /// The row of an address in a sequence.
    fn row(&self, sequence: Sequence, address: u64) -> Option<Row> {
        let place = self.sequences.get(&(sequence.start, sequence.end))?;
        let rows = self.rows.get(place.clone())?;
        let behind = rows.partition_point(|row| row.address <= address);
        rows[..behind].last().copied()
    }
}

/// The uncompressed bytes of a section.
pub(super) fn section<E: FileHeader<Endian = Endianness>>(
    parts: &Parts<'_, E>,
    name: &[u8],
    helper: &'static dyn Helper,
) -> Option<Vec<u8>> {
    let (_, section) = parts.section(name)?;
    let data = section.data(parts.endian, parts.data).ok()?;
    let packed = section.compression(parts.endian, parts.data).ok()?;
    let Some((header, offset, size)) = packed else {
        return Some(data.to_vec());
    };
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(size).ok()?)?;
    let compression = match header.ch_type(parts.endian) {
        ELFCOMPRESS_ZLIB => Compression::Zlib,
        ELFCOMPRESS_ZSTD => Compression::Zstd,
        _ => return None,
    };
    helper.unpack(compression, parts.data.get(start..end)?)
}

#[cfg(test)]
mod tests;
