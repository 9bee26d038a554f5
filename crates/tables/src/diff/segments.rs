//! What a table says of every address, from low to high.

use super::normal::{normal, says_something};
use crate::table::{Function, Row, Table};
use std::ops::Range;
use unwind_sim_unwind::derived::plt_threshold;
use unwind_sim_unwind::reason::Reason;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{Rule, Value};

/// The size of the blocks that a PLT's formula repeats for, bytes.
const PLT_BLOCK: u64 = 16;

/// A range of addresses with one row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) said: TableAnswer,
    /// The addresses of the function.
    pub(super) function: FunctionRange,
}

/// The addresses of a function: a `Range` that can be copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct FunctionRange {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// What a table says.
#[derive(Clone, Copy, Debug)]
pub(super) enum TableAnswer {
    /// A rule in normal form, and the offset of its row in the section.
    Row(Rule, u64),
    /// Nothing: the row has no CFA.
    Nothing,
    /// The function is malformed from here on.
    Malformed(Reason),
}

/// The segments of a table in a range of addresses, by address, without overlaps. Where functions
/// overlap, the last one that starts at or before an address has it, as in a binary search.
pub(super) struct Segments<'a> {
    table: &'a Table,
    functions: &'a [Function],
    next_function: usize,
    range: Range<u64>,
    rows: Box<dyn Iterator<Item = Row<'a>> + 'a>,
    /// The addresses of the current function that are not taken by the next one.
    current: Range<u64>,
    function: FunctionRange,
    error: Option<(u64, Reason)>,
    /// The rest of a row with a PLT's formula.
    plt: Option<Plt>,
}

struct Plt {
    rule: Rule,
    offset: u64,
    threshold: u64,
    left: Range<u64>,
}

impl<'a> Segments<'a> {
    pub(super) fn new(table: &'a Table, range: Range<u64>) -> Self {
        let functions = table.functions();
        let after = functions.partition_point(|f| f.range.start <= range.start);
        Segments {
            table,
            functions,
            next_function: after.saturating_sub(1),
            range,
            rows: Box::new(std::iter::empty()),
            current: 0..0,
            function: FunctionRange::default(),
            error: None,
            plt: None,
        }
    }

    /// Goes to the next function; false if there is none.
    fn advance(&mut self) -> bool {
        loop {
            let Some(function) = self.functions.get(self.next_function) else {
                return false;
            };
            if function.range.start >= self.range.end {
                return false;
            }

            self.next_function += 1;
            // A search ends at the next function from its start on, even if this one goes on there.
            let next = self.functions.get(self.next_function);
            let limit = next.map_or(u64::MAX, |next| next.range.start);
            let start = function.range.start.max(self.range.start);
            let end = function.range.end.min(limit).min(self.range.end);

            // Nothing is left of a function that starts where the next one does.
            if start >= end {
                continue;
            }

            self.current = start..end;
            self.function = FunctionRange {
                start: function.range.start,
                end: function.range.end,
            };
            self.error = function.error;
            self.rows = Box::new(self.table.rows(function));
            return true;
        }
    }

    /// The next piece of a PLT's row.
    fn plt(&mut self) -> Option<Segment> {
        let plt = self.plt.as_mut()?;
        let start = plt.left.start;
        let block = start / PLT_BLOCK * PLT_BLOCK;
        let is_pushed = start - block >= plt.threshold;
        let end = block.saturating_add(if is_pushed { PLT_BLOCK } else { plt.threshold });
        let end = end.min(plt.left.end);
        let cfa = Value::reg(Reg::Rsp, if is_pushed { 16 } else { 8 });
        let said = TableAnswer::Row(Rule { cfa, ..plt.rule }, plt.offset);
        plt.left.start = end;
        if plt.left.is_empty() || end <= start {
            self.plt = None;
        }
        Some(Segment {
            start,
            end,
            said,
            function: self.function,
        })
    }

    /// The segment of a row, cut to the current function.
    fn segment(&mut self, row: &Row<'a>) -> Option<Segment> {
        let start = row.start.max(self.current.start);

        // Rows may reach beyond the function in a damaged table.
        let end = row.end.min(self.current.end);
        if start >= end {
            return None;
        }

        let section = self.table.section();
        let rule = normal(row.rule, section);

        // The formula of a PLT gives two CFAs in every entry: two segments instead of one.
        if let Value::Expression(e) = rule.cfa {
            let from = e.start as usize;
            let bytes = section.get(from..from.saturating_add(e.len.into()));
            if let Some(threshold) = bytes.and_then(plt_threshold) {
                // It is parted into segments while they are asked for: a PLT may have any number
                // of entries.
                self.plt = Some(Plt {
                    rule,
                    offset: row.offset,
                    threshold: threshold.into(),
                    left: start..end,
                });
                return self.plt();
            }
        }

        let said = if says_something(&rule) {
            TableAnswer::Row(rule, row.offset)
        } else {
            TableAnswer::Nothing
        };
        Some(Segment {
            start,
            end,
            said,
            function: self.function,
        })
    }

    /// The part of the current function that is malformed.
    fn malformed(&mut self) -> Option<Segment> {
        let (from, reason) = self.error.take()?;
        let start = from.max(self.current.start);
        (start < self.current.end).then_some(Segment {
            start,
            end: self.current.end,
            said: TableAnswer::Malformed(reason),
            function: self.function,
        })
    }
}

impl Iterator for Segments<'_> {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        if self.plt.is_some() {
            return self.plt();
        }
        loop {
            while let Some(row) = self.rows.next() {
                if let Some(segment) = self.segment(&row) {
                    return Some(segment);
                }
            }
            if let Some(segment) = self.malformed() {
                return Some(segment);
            }
            if !self.advance() {
                return None;
            }
        }
    }
}
