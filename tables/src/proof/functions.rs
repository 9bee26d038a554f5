//! The functions of a file: those of all its tables together, or those that symbols name.
//!
//! `.eh_frame` comes first, then `.debug_frame`, then `.sframe`: the order in which walks use them. A
//! function that several tables describe is one, with the code of all of them.

use super::entry::{Entry, entry};
use super::program::Unit;
use super::without_code::repeats;
use crate::file::File;
use crate::proof::body::Body;
use crate::table::{Function, Table};
use hashbrown::HashSet;
use std::ops::Range;
use unwind_sim_unwind::row::TableKind;

/// The functions of `tables`, by address, without overlaps, and the ranges of those that share code
/// with one before them in the same table. None if no table has functions: ORC has none.
pub(super) fn listed(
    file: &File,
    tables: &[Table],
    called: &HashSet<u64>,
) -> Option<(Vec<Unit>, Vec<Range<u64>>)> {
    let mut all = tables.iter().enumerate();
    let mut all = all.by_ref().filter(|(_, t)| t.kind() != TableKind::Orc);
    let (number, first) = all.next()?;
    let mut units = of_table(file, (number, first), called);
    let mut overlapping = Vec::new();
    let mut end = 0;
    units.retain(|unit| {
        let is_apart = unit.range.start >= end;
        if is_apart {
            end = unit.range.end;
        } else {
            overlapping.push(unit.range.clone());
        }
        is_apart
    });
    for table in all {
        add(file, &mut units, of_table(file, table, called));
    }
    Some((units, overlapping))
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
    let known = units.len();
    let mut end = 0;
    for unit in more {
        // Where there is no code, or its own table has had it, nothing is added.
        if file.code_at(unit.range.start).is_none() || unit.range.start < end {
            continue;
        }
        end = unit.range.end;

        let pieces = uncovered(&units[..known], &unit.range);
        let is_whole = pieces.first().is_some_and(|p| p.range == unit.range);
        for piece in pieces {
            if !is_whole && is_all_padding(file, &piece.range) {
                continue;
            }
            let same = piece.before.and_then(|i| units.get_mut(i));
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
struct Piece {
    range: Range<u64>,
    /// The number of the function before it, if that ends where this starts.
    before: Option<usize>,
}

/// The parts of `range` that none of `units` has, which are in order and apart from each other.
fn uncovered(units: &[Unit], range: &Range<u64>) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut at = range.start;
    let mut before = None;
    let first = units.partition_point(|u| u.range.end <= range.start);
    let inside = units.iter().enumerate().skip(first);
    for (number, unit) in inside.take_while(|(_, u)| u.range.start < range.end) {
        if at < unit.range.start {
            pieces.push(Piece {
                range: at..unit.range.start,
                before,
            });
        }
        (at, before) = (unit.range.end, Some(number));
    }
    if at < range.end {
        let range = at..range.end;
        pieces.push(Piece { range, before });
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
            entry: match symbol.name.contains(".cold") {
                true => Entry::Part,
                false => Entry::Call,
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
