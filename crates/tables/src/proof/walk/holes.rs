//! Addresses that an SFrame table leaves out in the middle of a function, although it could describe them.
//!
//! An SFrame table has no FDE for what its format cannot express, so a function may have several FDEs with
//! holes between them, and a hole by itself is no mistake. It is one where the file's DWARF table has a row
//! that SFrame can express: then an FDE ends too early or begins too late.

use super::beyond::{DWARF, SFRAME, unwinder};
use super::rows::Rows;
use crate::convert::expressible::expressible;
use crate::convert::target::Target;
use crate::proof::program::Program;
use crate::table::Table;
use std::ops::Range;
use unwind_sim_unwind::derived::simplify;
use unwind_sim_unwind::rule::RuleKind;
use unwind_sim_unwind::sframe;

/// The holes, in order, in the SFrame rows of the function at `range` (svma), which has `rows`, where the
/// format can express what the DWARF rows say. Empty if a table does not have both, or has FDEs there that
/// cannot be read to their end.
pub(super) fn unexplained(
    program: &Program<'_>,
    rows: &[Rows<'_>],
    range: &Range<u64>,
) -> Vec<Range<u64>> {
    // The rows of one unwinder: its first table that has any here.
    let of = |bit| {
        rows.iter()
            .find(move |rows| unwinder(rows.table.kind()) == bit && !rows.rows.is_empty())
    };
    let (Some(own), Some(dwarf)) = (of(SFRAME), of(DWARF)) else {
        return Vec::new();
    };

    let table = &program.tables[own.number];
    let Some(target) = target(table).filter(|_| is_understood(table, range)) else {
        return Vec::new();
    };

    let mut found = Vec::new();
    let mut from = range.start;
    // An empty range at the end, for what lies behind the last row.
    let behind = range.end..range.end;
    let covered = own.rows.iter().map(|row| row.start..row.end);
    for covered in covered.chain([behind]) {
        // What lies between two rows; of the first one, from the start of the function.
        let hole = from..covered.start;
        from = from.max(covered.end);

        let first = dwarf.rows.partition_point(|row| row.end <= hole.start);
        let inside = dwarf.rows[first..].iter();

        // Only what the DWARF rows say of the hole can tell whether it is a mistake.
        for row in inside.take_while(|row| row.start < hole.end) {
            let part = row.start.max(hole.start)..row.end.min(hole.end);
            let can_be_said = row.rule.kind == RuleKind::Call
                && expressible(&simplify(row.rule, dwarf.table.section()), target);
            if !part.is_empty() && can_be_said {
                found.push(part);
            }
        }
    }
    found
}

/// The format of an SFrame table.
fn target(table: &Table) -> Option<Target> {
    let read = sframe::Table::parse(table.section(), table.address()).ok()?;
    Some(Target::Sframe(read.header().version))
}

/// Whether all FDEs of `table` in `range` (svma) can be read.
fn is_understood(table: &Table, range: &Range<u64>) -> bool {
    let functions = table.functions();
    let after = functions.partition_point(|f| f.range.start <= range.start);
    let inside = functions[after.saturating_sub(1)..].iter();
    let mut inside = inside.take_while(|f| f.range.start < range.end);
    inside.all(|f| f.error.is_none() || f.range.end <= range.start)
}
