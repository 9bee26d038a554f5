//! Compares a converted table with its source, at every address.
//!
//! Wherever the format can express the source's rule ([`expressible`]), the new table must have the
//! same rule; everywhere else it must have none. Nothing here knows how the new table was written.

use super::expressible::{expressible, projected};
use super::loss::Report;
use super::source::says_nothing;
use super::target::Target;
use crate::table::Table;
use std::ops::Range;
use unwind_sim_unwind::derived::{repeated_cfa, simplify};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{Rule, Value};

/// The maximum number of differences that are listed; the rest are counted.
pub const LISTED_MAX: usize = 16;
/// The size of a PLT's entries, bytes.
const PLT_ENTRY_LEN: u64 = 16;

/// Addresses at which the tables differ.
#[derive(Clone, PartialEq, Debug)]
pub struct Difference {
    /// The addresses (svma).
    pub range: Range<u64>,
    /// What the new table should say; `None` if it should have no row.
    pub expected: Option<Rule>,
    /// What it says.
    pub found: Option<Rule>,
}

/// The result of a comparison.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Comparison {
    /// Addresses at which both have the same rule.
    pub equal: u64,
    /// Addresses at which the source has a rule that the format cannot express, and the new table
    /// has none.
    pub inexpressible: u64,
    /// Addresses left out because a limit was reached ([`Report::limited`]).
    pub limited: u64,
    /// The number of ranges at which they differ.
    pub differences: u64,
    /// The first of them.
    pub listed: Vec<Difference>,
}

/// Compares `new`, which has format `target`, with `source`. `report` says which addresses were left
/// out because of a limit.
pub fn compare(source: &Table, new: &Table, target: Target, report: &Report) -> Comparison {
    let mut out = Comparison::default();
    for (function, next) in with_next(source) {
        // Readers find no row from the first malformed one on.
        let error = function.error.as_ref().map_or(u64::MAX, |error| error.0);

        // Where readers take an address for the next function's, the source says nothing of this
        // one.
        let end = function.range.end.min(next).min(error);

        let mut at = function.range.start;
        for row in source.rows(function) {
            // Rows of a damaged table may overlap; the first counts.
            let range = row.start.max(at)..row.end.min(end);
            if range.is_empty() {
                continue;
            }

            at = range.end;
            let rule = simplify(row.rule, source.section());
            compare_row(
                &rule,
                source.section(),
                range,
                (new, target, report),
                &mut out,
            );
        }
    }

    // Nothing may be in the new table that the source does not have.
    nothing_more(source, new, &mut out);
    out
}

/// The functions of a table, each with the start of the next one.
fn with_next(table: &Table) -> impl Iterator<Item = (&crate::table::Function, u64)> {
    let functions = table.functions();
    let nexts = functions.iter().skip(1).map(|f| f.range.start);
    functions.iter().zip(nexts.chain([u64::MAX]))
}

/// Compares the addresses `range`, at which the source says `rule`.
fn compare_row(
    rule: &Rule,
    section: &[u8],
    range: Range<u64>,
    (new, target, report): (&Table, Target, &Report),
    out: &mut Comparison,
) {
    let plt = repeated_cfa(rule, section).map(u64::from);

    let mut at = range.start;
    while at < range.end {
        let (mut rule, mut end) = (*rule, range.end);
        // The formula of a lazy PLT: the CFA is 8 bytes higher once an entry has pushed its number.
        if let Some(threshold) = plt {
            let (block, inside) = (at - at % PLT_ENTRY_LEN, at % PLT_ENTRY_LEN);
            let pushed = inside >= threshold;
            rule.cfa = Value::reg(Reg::Rsp, if pushed { 16 } else { 8 });
            let next = if pushed { PLT_ENTRY_LEN } else { threshold };
            end = end.min(block.saturating_add(next));
        }

        // The new table is asked as a reader would do it, by address.
        let found = new.row_at(at).filter(|row| !says_nothing(row.rule));
        end = match (&found, new.function_at(at)) {
            (Some(row), _) => end.min(row.end),
            (None, Some(function)) => end.min(next_row(new, function, at)),
            (None, None) => end.min(next_start(new, at)),
        };
        // Rows of a damaged table may end where they start; the loop must get on.
        let end = end.max(at + 1);

        // Both sides are brought to what the format can say at all.
        let expected = expressible(&rule, target).then(|| projected(&rule, target));
        let expected = expected.filter(|_| !says_nothing(&rule));
        let found = found.map(|row| projected(&simplify(row.rule, new.section()), target));

        if let (Some(_), None, Some(left_out)) = (&expected, &found, limited_until(report, at)) {
            let end = left_out.min(range.end);
            out.limited += end - at;
            at = end;
            continue;
        }

        // Expressions are compared by their bytes, which lie in two sections.
        let same = same(expected.as_ref(), section, found.as_ref(), new.section());
        out.count(at..end, expected, found, same);
        at = end;
    }
}

/// If `address` was left out because of a limit: the first address that was not.
fn limited_until(report: &Report, address: u64) -> Option<u64> {
    let after = report
        .limited
        .partition_point(|range| range.start <= address);
    let range = report.limited.get(after.checked_sub(1)?)?;
    range.contains(&address).then_some(range.end)
}

/// The start of the first row of `function` after `address`, or the function's end.
fn next_row(table: &Table, function: &crate::table::Function, address: u64) -> u64 {
    let starts = table.rows(function).map(|row| row.start);
    let mut later = starts.filter(|start| *start > address);
    later.next().unwrap_or(function.range.end)
}

/// Whether two rules mean the same. Expressions are compared by their bytes.
fn same(a: Option<&Rule>, a_section: &[u8], b: Option<&Rule>, b_section: &[u8]) -> bool {
    let (Some(a), Some(b)) = (a, b) else {
        return a.is_none() && b.is_none();
    };
    let same = |a: Value, b: Value| match (a, b) {
        (Value::Expression(a), Value::Expression(b)) => {
            let bytes = |section: &[u8], start: u32, len: u16| {
                let start = start as usize;
                section
                    .get(start..start + usize::from(len))
                    .map(<[u8]>::to_vec)
            };
            a.load == b.load && bytes(a_section, a.start, a.len) == bytes(b_section, b.start, b.len)
        }
        _ => a == b,
    };
    let saved = a.saved.iter().zip(b.saved);
    a.kind == b.kind
        && same(a.cfa, b.cfa)
        && same(a.ra, b.ra)
        && same(a.sp, b.sp)
        && saved.into_iter().all(|(a, b)| same(*a, b))
}

/// The start of the first function of `table` after `address`.
fn next_start(table: &Table, address: u64) -> u64 {
    let functions = table.functions();
    let after = functions.partition_point(|f| f.range.start <= address);
    functions.get(after).map_or(u64::MAX, |f| f.range.start)
}

/// Checks that `new` has no row where the source has no function.
fn nothing_more(source: &Table, new: &Table, out: &mut Comparison) {
    for (function, next) in with_next(new) {
        for row in new.rows(function) {
            let end = row.end.min(next);
            if says_nothing(row.rule) || row.start >= end {
                continue;
            }
            let mut at = row.start;
            while at < end {
                match source.row_at(at) {
                    Some(known) if known.end > at => at = known.end,
                    _ => {
                        let until = end.min(next_start(source, at)).max(at + 1);
                        out.count(at..until, None, Some(*row.rule), false);
                        at = until;
                    }
                }
            }
        }
    }
}

impl Comparison {
    /// The comparison with a table that is not there.
    pub(super) fn missing(source: &Table) -> Comparison {
        let mut out = Comparison::default();
        for function in source.functions() {
            out.count(function.range.clone(), Some(Rule::OUTERMOST), None, false);
        }
        out
    }

    fn count(
        &mut self,
        range: Range<u64>,
        expected: Option<Rule>,
        found: Option<Rule>,
        same: bool,
    ) {
        let bytes = range.end.saturating_sub(range.start);
        match (same, &expected) {
            (true, Some(_)) => self.equal += bytes,
            (true, None) => self.inexpressible += bytes,
            (false, _) => {
                self.differences += 1;
                if self.listed.len() < LISTED_MAX {
                    self.listed.push(Difference {
                        range,
                        expected,
                        found,
                    });
                }
            }
        }
    }
}
