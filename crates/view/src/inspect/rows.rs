//! Shows all rows of all tables of a function, side by side.

use super::columns::{Columns, cells};
use super::{InspectError, elf};
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::names::demangle;
use unwind_sim_recordings::similar::containing;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::derived::Tables;
use unwind_sim_unwind::dwarf::{self, Dwarf};
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::image::{Image, ImageParts, Mapping, SectionKind, Symbol};
use unwind_sim_unwind::orc::Orc;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::sframe::{Profile, Sframe};
use unwind_sim_unwind::step::find_row;

/// The maximum number of functions of one name that are shown.
pub const FUNCTIONS_MAX: usize = 16;
/// The maximum number of bytes of a function that are shown.
const FUNCTION_BYTES_MAX: u64 = 1 << 22;
/// The rows of the functions called `name` in an ELF file.
pub(super) fn show(file: &InputFile, name: &str) -> Result<String, InspectError> {
    // The parts are cloned, since each table gets an image that lacks the others.
    let parts = elf::open(file)?.parts;
    let image = Image::new(parts.clone());

    // A name with a typo is common, so names that resemble it are offered.
    let functions = functions(&image, name);
    if functions.is_empty() {
        return Err(InspectError::NoFunction {
            path: file.path().into(),
            name: name.to_owned(),
            similar: similar(&image, name),
        });
    }

    let tables = tables(parts);
    let mut out = String::new();

    // Functions of one name, such as static ones, are all shown, but not without a bound.
    for symbol in functions.iter().take(FUNCTIONS_MAX) {
        let range = range_of(&image, symbol);
        let size = range.end - range.start;
        let (name, start) = (demangle(&symbol.name), range.start);
        let separator = if out.is_empty() { "" } else { "\n" };
        let _ = writeln!(
            out,
            "{separator}{name}: {} at {start:#x}",
            counted(size, "byte")
        );
        function(&mut out, &tables, &range);
    }

    if functions.len() > FUNCTIONS_MAX {
        let more = functions.len() - FUNCTIONS_MAX;
        let _ = writeln!(out, "\nand {} of this name", counted(more, "more function"));
    }

    Ok(out)
}

/// The functions with that name, which may be mangled, demangled or without its version; one for
/// each address.
fn functions<'i>(image: &'i Image, name: &str) -> Vec<&'i Symbol> {
    let is_it = |s: &&Symbol| s.name == name || demangle(&s.name) == name;
    let mut found: Vec<&Symbol> = image.symbols().iter().filter(is_it).collect();
    found.dedup_by_key(|s| s.address);
    found
}

fn similar(image: &Image, name: &str) -> Vec<String> {
    let names = image.symbols().iter().map(|s| demangle(&s.name));
    containing(name, names)
}

/// The addresses of the function, or those of its FDE if the symbol has no size.
fn range_of(image: &Image, symbol: &Symbol) -> Range<u64> {
    let start = symbol.address;
    let size = if symbol.size > 0 {
        symbol.size
    } else {
        let units = dwarf::units(image, TableKind::EhFrame).flatten();
        let mut units = units.filter(|u| u.range.contains(&start));
        units.next().map_or(1, |u| u.range.end - start)
    };
    start..start.saturating_add(size.min(FUNCTION_BYTES_MAX))
}

/// A table, read by the same finder as in a walk.
struct Table {
    name: &'static str,
    finder: Box<dyn Finder>,
    mapping: Mapping,
}

/// Every table of the file, and the derived ones.
fn tables(parts: ImageParts) -> Vec<Table> {
    let has = |kind| parts.sections.iter().any(|s| s.kind == kind);

    // The unwinder reads `.debug_frame` only where `.eh_frame` has no row, so each gets one alone.
    let only = |without: SectionKind| {
        let mut parts = parts.clone();
        parts.sections.retain(|s| s.kind != without);
        parts
    };
    let mut out: Vec<Table> = Vec::new();

    // The finder is the unwinder's own, so the rows shown are those that a walk would use.
    let mut add = |kind: TableKind, finder: Box<dyn Finder>, parts: ImageParts| {
        out.push(Table {
            name: kind.as_str(),
            finder,
            mapping: Mapping {
                // The mapping is the file's own address space: addresses are svma.
                range: 0..u64::MAX,
                bias: 0,
                name: parts.name.clone(),
                image: Some(Arc::new(Image::new(parts))),
            },
        });
    };

    let dwarf = || Box::new(Dwarf::new());
    if has(SectionKind::EhFrame) {
        add(TableKind::EhFrame, dwarf(), only(SectionKind::DebugFrame));
    }
    if has(SectionKind::DebugFrame) {
        add(TableKind::DebugFrame, dwarf(), only(SectionKind::EhFrame));
    }

    // The profile of the specification refuses nothing that the format allows.
    let sframe = |tables| Box::new(Sframe::new(Profile::Spec, tables));
    let orc = |tables| Box::new(Orc::new(None, tables));
    if has(SectionKind::Sframe) {
        add(TableKind::Sframe, sframe(Tables::Real), parts.clone());
    }
    if has(SectionKind::OrcUnwind) {
        add(TableKind::Orc, orc(Tables::Real), parts.clone());
    }

    // `.eh_frame` is the source of all derived tables.
    if has(SectionKind::EhFrame) {
        let derived = Tables::Derived;
        add(TableKind::SframeDerived, sframe(derived), parts.clone());
        add(TableKind::OrcDerived, orc(derived), parts.clone());
    }

    out
}

/// A range of addresses with the same row, or with the same reason for having none.
struct RowRange {
    start: u64,
    place: String,
    text: String,
}

/// What is malformed in the file's own table of that section, in the address range.
#[cfg(test)]
pub(super) fn faults(file: &InputFile, section: SectionKind, range: &Range<u64>) -> Vec<String> {
    let parts = elf::open(file).map(|elf| elf.parts);
    let all = parts.map(tables).unwrap_or_default();
    let table = match section {
        SectionKind::Sframe => TableKind::Sframe,
        _ => TableKind::Orc,
    };
    let of_section = all.iter().filter(|t| t.name == table.as_str());
    let mut faults: Vec<String> = of_section
        .flat_map(|table| stretches(table, range))
        .filter_map(|stretch| Some(stretch.text.strip_prefix("US105 ")?.to_owned()))
        .collect();
    faults.dedup();
    faults
}

/// What the table says about each address in the range.
fn stretches(table: &Table, range: &Range<u64>) -> Vec<RowRange> {
    let mut cache = Cache::new();
    let mut out: Vec<RowRange> = Vec::new();
    let mut at = range.start;
    while at < range.end {
        // Each address is asked for as a walk would do it: readers may find different rows from a
        // plain listing.
        let found = find_row(&*table.finder, &table.mapping, at, &mut cache);
        let (next, place, text) = match found {
            Ok(row) => {
                let place = format!("+{:#x}", row.source.row_offset);
                (row.source.end, place, row.rule.to_string())
            }
            Err(reason) => {
                let code = reason.code();
                let text = format!("{code} {}", code.description());

                // These two reasons say more than their code does.
                let text = match reason {
                    unwind_sim_unwind::reason::Reason::NotHeld { what } => {
                        format!("{code} {what}")
                    }
                    unwind_sim_unwind::reason::Reason::MalformedRow { .. } => {
                        format!("{code} {reason}")
                    }
                    _ => text,
                };

                // Without a row it is not known where the next one starts, so each byte is asked.
                (at + 1, "-".to_owned(), text)
            }
        };

        // Neighbouring addresses with the same answer are one range.
        let same = out
            .last()
            .is_some_and(|s| s.place == place && s.text == text);
        if !same {
            let start = at;
            out.push(RowRange { start, place, text });
        }

        // A row that ends before `at` must not make this an endless loop.
        at = next.max(at + 1);
    }

    out
}

fn function(out: &mut String, tables: &[Table], range: &Range<u64>) {
    // A line wherever any table changes, so that rows of all tables can be compared across.
    let said: Vec<Vec<RowRange>> = tables.iter().map(|t| stretches(t, range)).collect();
    let mut starts: Vec<u64> = said.iter().flatten().map(|s| s.start).collect();
    starts.sort_unstable();
    starts.dedup();

    let mut text = Columns::new(&["address", "offset", "table", "row", "rule"]);
    for start in starts {
        let mut first = true;

        // The address stands in the first line of each address only.
        for (table, stretches) in tables.iter().zip(&said) {
            let Some(stretch) = stretches.iter().find(|s| s.start == start) else {
                continue;
            };

            let (address, offset) = if std::mem::take(&mut first) {
                (
                    format!("{start:#x}"),
                    format!("+{:#x}", start - range.start),
                )
            } else {
                (String::new(), String::new())
            };
            let (place, rule) = (&stretch.place, &stretch.text);
            text.row(cells![address, offset, table.name, place, rule]);
        }
    }

    if text.is_empty() {
        out.push_str("  the file has no unwind table\n");
    } else {
        text.write(out);
    }
}
