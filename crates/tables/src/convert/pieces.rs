//! Divides functions into pieces whose rows the format can hold, and writes them.
//!
//! A piece ends at a row that cannot be held, where a signal frame begins or ends, where rows begin
//! to repeat, and at the format's maximum number of rows. Equal neighbours become one row.

use super::loss::{LossReason, Report};
use super::source::{Repeat, RowSpan, Source, SourceFunction, says_nothing};
use crate::write::{Function, WriteError, Writer};
use std::ops::Range;
use unwind_sim_unwind::derived::{Loss, PLT_ROWS_MAX};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{Rule, RuleKind, Value};

/// The maximum number of blocks of a function whose rows repeat, as many as
/// [`unwind_sim_unwind::sframe::compile_blocks`] reads: a PLT of a megabyte.
const BLOCKS_MAX: u64 = 1 << 16;

/// Writes all functions of `source`.
pub(super) fn write<W: Writer>(
    source: &Source<'_>,
    writer: &mut W,
    report: &mut Report,
) -> Result<(), WriteError> {
    let mut rows = Vec::new();
    let mut expanded = 0;
    source.each(report, |function, report| {
        let mut piece = PieceBuilder {
            writer,
            report,
            function,
            rows: std::mem::take(&mut rows),
            range: 0..0,
            signal: None,
            expanded: &mut expanded,
        };
        let done = piece.add_all();
        rows = std::mem::take(&mut piece.rows);
        done
    })
}

/// Writes functions that come one by one, by address.
pub(crate) fn write_each<W: Writer>(
    functions: impl Iterator<Item = SourceFunction>,
    writer: &mut W,
    report: &mut Report,
) -> Result<(), WriteError> {
    let mut expanded = 0;
    for function in functions {
        report.functions_read += 1;
        report.rows_read += function.parts.len() as u64;
        let mut piece = PieceBuilder {
            writer,
            report,
            function: &function,
            rows: Vec::new(),
            range: 0..0,
            signal: None,
            expanded: &mut expanded,
        };
        piece.add_all()?;
    }
    Ok(())
}

/// The piece that is being filled.
struct PieceBuilder<'a, W: Writer> {
    writer: &'a mut W,
    report: &'a mut Report,
    function: &'a SourceFunction,
    rows: Vec<(u32, W::Row)>,
    range: Range<u64>,
    signal: Option<bool>,
    /// Rows that repeated ones were expanded to, in all functions.
    expanded: &'a mut usize,
}

impl<W: Writer> PieceBuilder<'_, W> {
    fn add_all(&mut self) -> Result<(), WriteError> {
        for part in &self.function.parts {
            match part {
                RowSpan::Row(range, rule) => self.add(range, rule)?,
                RowSpan::Repeat(range, repeat) => self.add_repeat(range, repeat)?,
            }
        }
        self.flush()
    }

    fn lose(&mut self, lost: LossReason, range: &Range<u64>) {
        self.report
            .lose(&self.function.range, lost, 1, range.clone());
    }

    /// Adds the row of `range`.
    fn add(&mut self, range: &Range<u64>, rule: &Rule) -> Result<(), WriteError> {
        // Where the source says nothing, the new table must have no row either.
        if says_nothing(rule) {
            return self.flush();
        }

        // A row that the format cannot hold ends the piece, and is counted as lost.
        let row = match self.writer.row(rule) {
            Ok(row) => row,
            Err(lost) => {
                self.lose(lost, range);
                return self.flush();
            }
        };

        if !W::HOLDS_CALLEE_SAVED && has_callee_saved(rule) {
            self.lose(LossReason::Rule(Loss::CalleeSaved), range);
        }

        // Signal frames are marked by function, not by row, so a piece is all of one kind.
        let signal = self.writer.signal(&row);

        // Rows that fit both kinds do not part a piece.
        let parted = matches!((signal, self.signal), (Some(a), Some(b)) if a != b);
        let full = self.rows.len() >= self.writer.rows_max();

        // Formats have a limit on the size of a function and on the number of its rows.
        let size_max = u64::from(self.writer.size_max());
        let large = range.end - self.range.start.min(range.start) > size_max;
        if parted || full || large || self.range.end != range.start {
            self.flush()?;
        }

        // One row alone may be larger than a function can be.
        if range.end - range.start > size_max {
            self.lose(LossReason::Rule(Loss::TooLarge), range);
            return Ok(());
        }

        if self.rows.is_empty() {
            self.range = range.clone();
        }

        self.signal = self.signal.or(signal);
        self.range.end = range.end;
        let offset = u32::try_from(range.start - self.range.start).unwrap_or(u32::MAX);
        if self.rows.last().is_none_or(|last| last.1 != row) {
            self.rows.push((offset, row));
        }
        Ok(())
    }

    /// Writes the piece.
    fn flush(&mut self) -> Result<(), WriteError> {
        if !self.rows.is_empty() {
            self.write(None)?;
        }
        self.rows.clear();
        self.signal = None;
        self.range = 0..0;
        Ok(())
    }

    fn write(&mut self, repeat: Option<u8>) -> Result<(), WriteError> {
        let size = self.range.end - self.range.start;
        self.report.functions_written += 1;
        self.report.rows_written += self.rows.len() as u64;
        self.writer.function(&Function {
            start: self.range.start,
            size: u32::try_from(size).unwrap_or(u32::MAX),
            repeat,
            signal: self.signal == Some(true),
            rows: &self.rows,
        })
    }

    /// Adds repeated rows: as such where the format can repeat them all, else one by one.
    fn add_repeat(&mut self, range: &Range<u64>, repeat: &Repeat) -> Result<(), WriteError> {
        // Where the first whole block begins, if the range starts inside of one.
        let block = u64::from(repeat.size);
        let lead = (block - u64::from(repeat.phase)) % block.max(1);
        let middle = range.start.saturating_add(lead).min(range.end);
        let fits = range.end - middle > block && u32::try_from(range.end - middle).is_ok();

        // All or none: a block with a row that the format cannot hold is not a block any more.
        let rows = repeat.rows.iter().map(|(_, rule)| self.writer.row(rule));
        let rows: Option<Vec<W::Row>> = rows.map(Result::ok).collect();
        let marks = |row: &W::Row| self.writer.signal(row);
        let Some(rows) = rows.filter(|rows| {
            let starts = repeat.rows.first().is_some_and(|row| row.0 == 0);
            let same = rows.iter().all(|row| marks(row) != Some(true));
            self.writer.repeats() && fits && starts && same
        }) else {
            return self.expand(range.clone(), repeat);
        };

        // Before the first whole block, rows cannot repeat.
        self.expand(range.start..middle, repeat)?;
        self.flush()?;

        // One block's rows stand for all.
        for ((offset, rule), row) in repeat.rows.iter().zip(rows) {
            if !W::HOLDS_CALLEE_SAVED && has_callee_saved(rule) {
                self.lose(LossReason::Rule(Loss::CalleeSaved), range);
            }
            if self.rows.last().is_none_or(|last| last.1 != row) {
                self.rows.push(((*offset).into(), row));
            }
        }

        // A repeated function may be of any size in the source, so the number of blocks has a
        // bound.
        let end = middle.saturating_add(block * BLOCKS_MAX).min(range.end);
        self.range = middle..end;
        self.write(Some(repeat.size))?;
        self.rows.clear();

        if end < range.end {
            self.lose(LossReason::Rule(Loss::TooManyRows), &(end..range.end));
        }
        self.flush()
    }

    /// Adds repeated rows one by one, up to a limit.
    fn expand(&mut self, range: Range<u64>, repeat: &Repeat) -> Result<(), WriteError> {
        let mut at = range.start;
        while at < range.end {
            let Some((end, rule)) = repeat.rule_at(at - range.start) else {
                return self.flush();
            };
            let end = range.start.saturating_add(end).min(range.end);
            *self.expanded += 1;
            if *self.expanded > PLT_ROWS_MAX || end <= at {
                self.lose(LossReason::Rule(Loss::TooManyRows), &(at..range.end));
                return self.flush();
            }
            self.add(&(at..end), rule)?;
            at = end;
        }
        Ok(())
    }
}

impl Repeat {
    /// The rule `offset` bytes after the start of the part, and the offset at which the next one
    /// applies.
    pub(super) fn rule_at(&self, offset: u64) -> Option<(u64, &Rule)> {
        let block = u64::from(self.size.max(1));
        let inside = offset.checked_add(self.phase.into())? % block;
        let index = self.rows.partition_point(|row| u64::from(row.0) <= inside);
        let (_, rule) = self.rows.get(index.checked_sub(1)?)?;
        let next = self.rows.get(index).map_or(block, |row| row.0.into());
        let next = next.min(block);
        Some((offset.checked_add(next.checked_sub(inside)?)?, rule))
    }
}

/// Whether the rule says something of rbx or r12 to r15.
fn has_callee_saved(rule: &Rule) -> bool {
    let regs = [Reg::Rbx, Reg::R12, Reg::R13, Reg::R14, Reg::R15];
    let said = |reg| !matches!(rule.saved(reg), Value::Same | Value::Unspecified);
    rule.kind != RuleKind::Outermost && regs.into_iter().any(said)
}
