//! The functions of a file: those of all its tables together, or those that symbols name.
//!
//! `.eh_frame` comes first, then `.debug_frame`, then `.sframe`: the order in which walks use them. A
//! function that several tables describe is one, with the code of all of them.

use super::entry::{Entry, entry};
use super::program::Unit;
use super::without_code::repeats;
use crate::file::File;
use crate::proof::body::Body;
use crate::table::{Function, Row, Table};
use hashbrown::HashSet;
use std::ops::Range;
use unwind_sim_unwind::image::Symbol;
use unwind_sim_unwind::row::TableKind;

/// Where functions of one table share code.
#[derive(Default)]
pub(super) struct SharedCode {
    /// All such ranges (svma).
    pub(super) all: Vec<Range<u64>>,
    /// The functions that a search never finds, because another one starts at the same address.
    pub(super) hidden: Vec<Range<u64>>,
}

/// The functions of `tables`, by address, without overlaps, and where those of the first one share code.
/// None if no table has functions: ORC has none.
pub(super) fn listed(
    file: &File,
    tables: &[Table],
    called: &HashSet<u64>,
) -> Option<(Vec<Unit>, SharedCode)> {
    let mut all = tables.iter().enumerate();
    let mut all = all.by_ref().filter(|(_, t)| t.kind() != TableKind::Orc);
    let (number, first) = all.next()?;
    let mut units = of_table(file, (number, first), called);
    let shared = separate(&mut units);
    for table in all {
        add(file, &mut units, of_table(file, table, called));
    }
    Some((units, shared))
}

/// Lets each of `units`, in order, end where the next one starts, as a search sees them.
fn separate(units: &mut Vec<Unit>) -> SharedCode {
    let mut shared = SharedCode::default();
    let mut next = u64::MAX..u64::MAX;
    for unit in units.iter_mut().rev() {
        let range = unit.range.clone();
        if range.end > next.start {
            shared.all.push(next.start..range.end.min(next.end));
            unit.range.end = next.start;
        }
        if unit.range.is_empty() {
            shared.hidden.push(range.clone());
        }
        next = range;
    }
    units.retain(|unit| !unit.range.is_empty());
    shared.all.reverse();
    shared.hidden.reverse();
    shared
}

/// Whether the FDE of `unit`, which goes on where others start, says there what these say: then readers that
/// do not search find the same.
pub(super) fn agrees(table: &Table, unit: &Unit) -> bool {
    let (start, end) = (unit.range.end, unit.own_end);
    let all = table.functions();
    let first = all.partition_point(|f| f.range.start < unit.range.start);
    let mut same = all[first..]
        .iter()
        .take_while(|f| f.range.start == unit.range.start);
    let Some(function) = same.find(|f| f.offset == unit.offset) else {
        return false;
    };
    let own: Vec<Row<'_>> = table.rows(function).collect();
    let others = table.rows_in(&(start..end));
    let starts = own.iter().chain(&others).map(|row| row.start);
    let mut places = starts.filter(|at| (start..end).contains(at)).chain([start]);
    places.all(|at| {
        let rule = |rows: &[Row<'_>]| {
            let row = rows.iter().find(|row| (row.start..row.end).contains(&at));
            row.map(|row| *row.rule)
        };
        // Where there is no other, a search finds nothing.
        rule(&others).is_none_or(|other| rule(&own) == Some(other))
    })
}

/// The functions of one table. What stands for repeated blocks of one FDE is one function.
fn of_table(file: &File, (number, table): (usize, &Table), called: &HashSet<u64>) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::with_capacity(table.functions().len());
    for (index, function) in table.functions().iter().enumerate() {
        let has_code = !function.range.is_empty() && file.code_at(function.range.start).is_some();
        if !has_code || repeats(table, index) {
            continue;
        }
        if let Some(last) = units.last_mut()
            && table.kind() == TableKind::Sframe
            && last.offset == function.offset
            && last.range.end == function.range.start
        {
            last.range.end = function.range.end;
            last.own_end = function.range.end;
            continue;
        }
        units.push(unit(file, (number, table), function, called));
    }
    units
}

fn unit(
    file: &File,
    (number, table): (usize, &Table),
    function: &Function,
    called: &HashSet<u64>,
) -> Unit {
    Unit {
        range: function.range.clone(),
        own_end: function.range.end,
        lsda: function.lsda,
        entry: entry(file, table, function, called),
        table: number,
        offset: function.offset,
    }
}

/// Adds the functions `more` of another table where `units` have no code. A longer one with the same
/// start lends its end to the known one, whose own rows end too early.
fn add(file: &File, units: &mut Vec<Unit>, more: Vec<Unit>) {
    // The functions that were there before are the ones that pieces are cut out of, so new ones do
    // not count.
    let known = units.len();
    let mut end = 0;
    for unit in more {
        // Where there is no code, or its own table has had it, nothing is added.
        if file.code_at(unit.range.start).is_none() || unit.range.start < end {
            continue;
        }
        end = unit.range.end;

        // What no known function covers: nothing, all of it, or pieces before, between and behind.
        let pieces = uncovered(&units[..known], &unit.range);
        let is_whole = pieces.first().is_some_and(|p| p.range == unit.range);

        // Linkers and assemblers fill the room between functions, and some tables cover that as
        // well.
        for piece in pieces {
            if !is_whole && is_all_padding(file, &piece.range) {
                continue;
            }
            let same = piece.before.and_then(|i| units.get_mut(i));

            // The table that starts the function knows less of it, so its end moves.
            match same.filter(|same| same.range.start == unit.range.start) {
                Some(same) => same.range.end = piece.range.end,
                None => units.push(Unit {
                    entry: if is_whole { unit.entry } else { Entry::Part },
                    own_end: piece.range.end,
                    range: piece.range,
                    ..unit.clone()
                }),
            }
        }
    }
    units.sort_by_key(|u| u.range.start);
}

/// A part of a function that no other has.
struct ExclusiveRange {
    range: Range<u64>,
    /// The number of the function before it, if that ends where this starts.
    before: Option<usize>,
}

/// The parts of `range` that none of `units` has, which are in order and apart from each other.
fn uncovered(units: &[Unit], range: &Range<u64>) -> Vec<ExclusiveRange> {
    let mut pieces = Vec::new();
    let mut at = range.start;
    let mut before = None;
    let first = units.partition_point(|u| u.range.end <= range.start);
    let inside = units.iter().enumerate().skip(first);
    for (number, unit) in inside.take_while(|(_, u)| u.range.start < range.end) {
        if at < unit.range.start {
            pieces.push(ExclusiveRange {
                range: at..unit.range.start,
                before,
            });
        }
        (at, before) = (unit.range.end, Some(number));
    }
    if at < range.end {
        let range = at..range.end;
        pieces.push(ExclusiveRange { range, before });
    }
    pieces
}

fn is_all_padding(file: &File, range: &Range<u64>) -> bool {
    let Some(mut body) = Body::new(file, range.clone()) else {
        return true;
    };
    body.skip_padding(file, range.start).is_none()
}

/// The functions that symbols with a size name; a longer one before those inside it.
pub(super) fn by_symbols(file: &File) -> Vec<Unit> {
    let symbols = file.image().symbols().iter().filter(|s| s.size > 0);
    let units = symbols.filter_map(|symbol| {
        let code = file.code_at(symbol.address)?;
        let end = symbol.address.checked_add(symbol.size)?;
        let end = end.min(code.range.end);
        Some(Unit {
            range: symbol.address..end,
            own_end: end,
            lsda: None,
            entry: if Symbol::is_named_as_part(&symbol.name) {
                Entry::Part
            } else {
                Entry::Call
            },
            table: 0,
            offset: 0,
        })
    });
    let mut units: Vec<Unit> = units.collect();
    units.sort_by_key(|u| (u.range.start, u64::MAX - u.range.end));
    units.dedup_by_key(|u| u.range.start);
    units
}
