//! FDEs that have no code of their own: those at addresses without code, and those that repeat another.

use crate::file::File;
use crate::index;
use crate::table::Table;
use std::ops::Range;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::rule::{Expression, Rule, Value};

/// FDEs at addresses (svma) that have no code of the file: there is nothing to judge.
#[derive(Debug, Default)]
pub struct WithoutCode {
    /// Those of functions that the linker discarded.
    pub dead: Vec<Range<u64>>,
    /// FDEs at addresses without code that are not those of dropped functions.
    pub misplaced: Vec<Range<u64>>,
}

impl WithoutCode {
    /// The FDEs of `tables` that have no code. What several tables say is listed once.
    pub(super) fn of(file: &File, tables: &[Table]) -> WithoutCode {
        let mut out = WithoutCode::default();
        // The code of a file of debug information is elsewhere.
        if file.is_debug_file() {
            return out;
        }

        // The sum of all code bounds what an FDE can rightly claim.
        let code = file.code().iter().map(|c| c.range.end - c.range.start);
        let code: u64 = code.fold(0, u64::saturating_add);

        let tables = tables.iter().filter(|t| t.kind() != TableKind::Orc);
        let functions = tables.flat_map(|t| t.functions().iter().map(move |f| (t, f)));

        for (table, function) in functions.filter(|(_, f)| !f.range.is_empty()) {
            if file.code_at(function.range.start).is_some() {
                continue;
            }

            // No function is longer than all code: such a length is not one.
            let Range { start, end } = function.range;
            let range = if end - start > code {
                start..start
            } else {
                start..end
            };

            // FDEs of code that the linker has dropped are told from those that point to a wrong
            // place.
            if index::is_dead(file, table, function) {
                out.dead.push(range)
            } else {
                out.misplaced.push(range)
            }
        }

        for ranges in [&mut out.dead, &mut out.misplaced] {
            ranges.sort_by_key(|range| (range.start, range.end));
            ranges.dedup();
        }
        out
    }
}

/// The most FDEs with the same first address that are compared with one.
const REPEATED_MAX: usize = 64;

/// Whether an FDE before it says the same of the same code: GNU ld and gold give the copies of a
/// discarded inline function in `.debug_frame` the address of the one that they keep.
pub(super) fn repeats(table: &Table, number: usize) -> bool {
    let functions = table.functions();
    let Some(function) = functions.get(number) else {
        return false;
    };
    let before = functions[..number].iter().rev().take(REPEATED_MAX);
    let mut before = before.take_while(|f| f.range.start == function.range.start);
    before.any(|other| {
        let (one, two) = (table.rows(other), table.rows(function));
        other.range == function.range
            && other.lsda == function.lsda
            && other.error.is_none()
            && function.error.is_none()
            && one.len() == two.len()
            && one.zip(two).all(|(a, b)| {
                (a.start, a.end) == (b.start, b.end) && are_equal(a.rule, b.rule, table.section())
            })
    })
}

/// Whether two rules of a table are the same; `section` has the bytes of their expressions.
fn are_equal(one: &Rule, two: &Rule, section: &[u8]) -> bool {
    let bytes = |e: Expression| {
        let start = e.start as usize;
        section.get(start..start + usize::from(e.len))
    };
    let same = |a: Value, b: Value| match (a, b) {
        (Value::Expression(a), Value::Expression(b)) => a.load == b.load && bytes(a) == bytes(b),
        (a, b) => a == b,
    };
    let saved = one.saved.into_iter().zip(two.saved);
    one.kind == two.kind
        && same(one.cfa, two.cfa)
        && same(one.ra, two.ra)
        && same(one.sp, two.sp)
        && saved.into_iter().all(|(a, b)| same(a, b))
}
