//! The code of a file with the rules of its tables beside each instruction.

use super::code;
use super::names::{Names, address};
use crate::code_rules::{CodeRules, RuleColumn};
use crate::source_lines::{SourceLines, SourceTexts};
use std::io::{self, Write};
use std::ops::Range;
use unwind_sim_judge::diagnose::frame_pointer_at;
use unwind_sim_tables::dump::Filter;
use unwind_sim_tables::file::File;
use unwind_sim_tables::table::Table;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::derived::Tables;
use unwind_sim_unwind::dwarf::Dwarf;
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::fp::FramePointer;
use unwind_sim_unwind::image::{AddressSpace, Mapping};
use unwind_sim_unwind::orc::Orc;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::sframe::{Profile, Sframe};

/// The number of bytes of code that are written at once. A longer function comes in pieces.
const PIECE: u64 = 1 << 13;

/// Writes the code of `file` that `filter` shows, function by function, with a column for each of the
/// unwinders that read `kinds`, and one for frame pointers in functions that set one up. Returns the
/// number of instructions.
///
/// # Errors
/// Those of `out`.
pub fn write_listing(
    file: &File,
    kinds: &[TableKind],
    filter: &Filter,
    out: &mut dyn Write,
) -> io::Result<u64> {
    // Addresses of a listing are those of the file.
    let mapping = Mapping {
        range: 0..u64::MAX,
        bias: 0,
        image: Some(file.image().clone()),
        name: file.name().to_owned(),
    };
    let mut space = AddressSpace::new();
    space.map(mapping.clone());

    let mut listing = Listing {
        file,
        space,
        mapping,
        finders: finders(kinds)
            .into_iter()
            .map(|finder| (finder, Cache::new()))
            .collect(),
        names: Names::new(file),
        lines: SourceLines::of_file(file),
        texts: SourceTexts::default(),
        instructions: 0,
    };
    for function in functions(file, kinds) {
        if filter.shows(&function) {
            listing.function(function, out)?;
        }
    }
    Ok(listing.instructions)
}

/// The unwinders that read these tables. Rows that are derived from another table are not shown: the
/// file does not have them.
fn finders(kinds: &[TableKind]) -> Vec<Box<dyn Finder>> {
    let mut finders: Vec<Box<dyn Finder>> = Vec::new();
    if kinds.iter().any(|kind| kind.is_dwarf()) {
        finders.push(Box::new(Dwarf::new()));
    }
    if kinds.contains(&TableKind::Orc) {
        finders.push(Box::new(Orc::new(None, Tables::Real)));
    }
    if kinds.contains(&TableKind::Sframe) {
        finders.push(Box::new(Sframe::new(Profile::default(), Tables::Real)));
    }
    finders
}

/// The addresses (svma) of the functions: those of symbols, and those of tables for code without one.
/// None reaches into the next.
fn functions(file: &File, kinds: &[TableKind]) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> = Vec::new();
    for symbol in file.image().symbols() {
        if let Some(code) = file.code_at(symbol.address) {
            // Assembly has symbols without a size, which reach up to the next one.
            let end = match symbol.size {
                0 => code.range.end,
                size => symbol.address.saturating_add(size).min(code.range.end),
            };
            all.push(symbol.address..end);
        }
    }

    // The pieces of an ORC table are not functions.
    let with_functions = kinds.iter().filter(|kind| **kind != TableKind::Orc);
    for table in with_functions.filter_map(|kind| Table::read(file, *kind)) {
        for function in table.functions() {
            if let Some(code) = file.code_at(function.range.start) {
                let end = function.range.end.min(code.range.end);
                all.push(function.range.start..end);
            }
        }
    }

    // Of several that start at one address the longest one counts.
    all.sort_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
    all.dedup_by_key(|range| range.start);
    let starts: Vec<u64> = all.iter().map(|range| range.start).collect();
    for (range, next) in all.iter_mut().zip(starts.iter().skip(1)) {
        range.end = range.end.min(*next);
    }
    all.retain(|range| !range.is_empty());
    all
}

struct Listing<'a> {
    file: &'a File,
    space: AddressSpace,
    mapping: Mapping,
    finders: Vec<(Box<dyn Finder>, Cache)>,
    names: Names<'a>,
    lines: SourceLines,
    texts: SourceTexts,
    /// The number of instructions written.
    instructions: u64,
}

impl Listing<'_> {
    fn function(&mut self, range: Range<u64>, out: &mut dyn Write) -> io::Result<()> {
        if self.instructions > 0 {
            out.write_all(b"\n")?;
        }
        let mut head = String::new();
        address(self.file, range.start, &mut head);
        head.push(' ');
        self.names.place(range.start, &mut head);
        writeln!(out, "{head}:")?;

        // A column of frame pointers says nothing where there is none.
        let convention: &dyn Finder = &FramePointer;
        let mut fp_cache = Cache::new();
        let has_frame_pointer =
            code::within(self.file, range.start..range.end.min(range.start + PIECE))
                .iter()
                .any(|insn| frame_pointer_at(&self.space, insn.address).is_none());

        let mut start = range.start;
        while start < range.end {
            let insns = code::within(self.file, start..range.end.min(start.saturating_add(PIECE)));
            let Some(last) = insns.last() else { break };
            start = last.end;
            self.instructions += insns.len() as u64;

            let finders = self.finders.iter_mut();
            let mut columns: Vec<RuleColumn<'_>> = finders
                .map(|(finder, cache)| RuleColumn {
                    name: finder.name().to_owned(),
                    finder: &**finder,
                    cache,
                })
                .collect();
            if has_frame_pointer {
                columns.push(RuleColumn {
                    name: convention.name().to_owned(),
                    finder: convention,
                    cache: &mut fp_cache,
                });
            }

            let sources = (&self.lines, &mut self.texts);
            let mut rules = CodeRules::new(&self.mapping, insns, &mut columns, None, sources);
            if has_frame_pointer {
                mark_frame_pointers(&mut rules, &self.space);
            }

            let file = self.file;
            let place = |at: u64| {
                let mut text = String::new();
                address(file, at, &mut text);
                text
            };
            out.write_all(rules.text(0..rules.lines.len(), None, &place).as_bytes())?;
        }
        Ok(())
    }
}

/// Marks where rbp is not the frame pointer, as the code says: the convention holds nowhere else.
fn mark_frame_pointers(rules: &mut CodeRules, space: &AddressSpace) {
    for line in &mut rules.lines {
        let cause = frame_pointer_at(space, line.insn.address);
        if let (Some(cell), Some(code)) = (line.cells.last_mut(), cause) {
            cell.wrong.push(code.as_str());
        }
    }
}
