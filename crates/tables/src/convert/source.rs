//! Functions and rows of a table as the conversion needs them.
//!
//! An address belongs to the last function that starts at or before it, as readers of a sorted table
//! find it ([`Table::function_at`]). So a function ends where the next one starts, and of several
//! with the same start only the last one counts.
//!
//! ORC has no functions. A run of entries without a gap becomes one, divided where a symbol starts.

use super::loss::{LossReason, Report};
use crate::file::File;
use crate::table::{Row, Table};
use std::ops::Range;
use unwind_sim_unwind::derived::{repeated_cfa, simplify};
use unwind_sim_unwind::image::SectionKind;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::rule::{Rule, RuleKind, Value};
use unwind_sim_unwind::sframe;

/// The size of a PLT's entries, after which the rule of a PLT formula repeats, bytes.
pub(crate) const PLT_ENTRY_LEN: u8 = 16;

/// Rows that repeat.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Repeat {
    /// After how many bytes they repeat, counted from the start of the part.
    pub(crate) size: u8,
    /// Offset in the block at which the part starts.
    pub(crate) phase: u8,
    /// Offset in the block, and rule.
    pub(crate) rows: Vec<(u8, Rule)>,
}

/// A part of a function.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum RowSpan {
    /// One row, for these addresses (svma).
    Row(Range<u64>, Rule),
    /// Repeated rows.
    Repeat(Range<u64>, Repeat),
}

/// A function of a source table.
#[derive(Clone, Debug)]
pub(crate) struct SourceFunction {
    /// The addresses (svma) that the table gives.
    pub(crate) range: Range<u64>,
    /// Its parts, by address, within what readers find.
    pub(crate) parts: Vec<RowSpan>,
}

/// A table to convert.
pub(crate) struct Source<'a> {
    file: &'a File,
    table: &'a Table,
}

/// A rule that says nothing: an undefined ORC entry.
pub(crate) fn says_nothing(rule: &Rule) -> bool {
    rule.kind == RuleKind::Call && rule.cfa == Value::Undefined && rule.ra == Value::Undefined
}

/// `row`'s part of its function: a row, or the repeated rows of a PLT formula.
fn part(row: &Row<'_>, range: Range<u64>, section: &[u8]) -> RowSpan {
    let rule = simplify(row.rule, section);
    let Some(threshold) = repeated_cfa(&rule, section) else {
        return RowSpan::Row(range, rule);
    };
    let [before, after] = [8, 16].map(|offset| Rule {
        cfa: Value::reg(Reg::Rsp, offset),
        ..rule
    });
    let phase = (range.start % u64::from(PLT_ENTRY_LEN)) as u8;
    let repeat = Repeat {
        size: PLT_ENTRY_LEN,
        phase,
        rows: vec![(0, before), (threshold, after)],
    };
    RowSpan::Repeat(range, repeat)
}

impl<'a> Source<'a> {
    pub(crate) fn new(file: &'a File, table: &'a Table) -> Self {
        Source { file, table }
    }

    /// The table's functions, by address, which do not overlap. What they hide is lost.
    pub(crate) fn each<E>(
        &self,
        report: &mut Report,
        mut each: impl FnMut(&SourceFunction, &mut Report) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.table.kind() {
            TableKind::Orc => self.each_run(report, each),
            TableKind::Sframe => {
                let repeats = self.repeats();
                self.each_unit(&repeats, report, &mut each)
            }
            _ => self.each_unit(&[], report, &mut each),
        }
    }

    /// The SFrame functions whose rows repeat: offset of the FDE, and size of the block.
    fn repeats(&self) -> Vec<(u64, u8)> {
        let section = self.file.image().section(SectionKind::Sframe);
        let table = section.and_then(|s| sframe::Table::parse(&s.data, s.address).ok());
        let fdes = table.iter().flat_map(sframe::Table::fdes).flatten();
        let sizes = fdes.filter_map(|fde| Some((fde.offset, fde.rep_size?)));
        let mut found: Vec<_> = sizes.collect();
        found.sort_unstable();
        found
    }

    fn each_unit<E>(
        &self,
        repeats: &[(u64, u8)],
        report: &mut Report,
        each: &mut impl FnMut(&SourceFunction, &mut Report) -> Result<(), E>,
    ) -> Result<(), E> {
        let functions = self.table.functions();
        let mut at = 0;
        while let Some(first) = functions.get(at) {
            // The blocks of a repeated function follow each other. Each has its own error.
            let repeat = repeats.binary_search_by_key(&first.offset, |r| r.0).ok();
            let repeat = repeat.and_then(|i| repeats.get(i)).map(|r| r.1);
            let repeat = repeat.filter(|_| first.error.is_none());

            // They have one FDE, and one lies behind the other.
            let mut last = at;
            while let (Some(_), Some(this), Some(next)) =
                (repeat, functions.get(last), functions.get(last + 1))
                && next.offset == first.offset
                && next.range.start == this.range.end
            {
                last += 1;
            }

            let range = first.range.start..functions.get(last).map_or(0, |f| f.range.end);
            report.functions_read += 1;
            // Only `.eh_frame` leads to LSDAs, and it is never converted into itself.
            if first.lsda.is_some() {
                report.lose(&range, LossReason::Lsda, 0, range.clone());
            }

            // Readers take an address for that of the last function which starts at or before it.
            let next = functions.get(last + 1);
            let found = range.start..range.end.min(next.map_or(u64::MAX, |n| n.range.start));
            if found.end < range.end {
                report.lose(&range, LossReason::Overlap, 0, found.end..range.end);
            }

            // The rows before the first malformed one are readable.
            let readable = match &first.error {
                Some((from, _)) => found.start..found.end.min(*from),
                None => found.clone(),
            };
            if readable.end < found.end {
                report.lose(&range, LossReason::Unreadable, 0, readable.end..found.end);
            }

            // Blocks that repeat are passed on as such; the writer may have to expand them.
            let parts = match repeat {
                Some(size) if last > at => vec![self.repeated(first, size, readable)],
                _ => self.parts(first, &readable),
            };
            report.rows_read += parts.len() as u64;

            each(&SourceFunction { range, parts }, report)?;
            at = last + 1;
        }
        Ok(())
    }

    fn repeated(&self, first: &crate::table::Function, size: u8, range: Range<u64>) -> RowSpan {
        let rows = self.table.rows(first).map(|row| {
            let offset = row.start.saturating_sub(first.range.start);
            (u8::try_from(offset).unwrap_or(u8::MAX), *row.rule)
        });
        let repeat = Repeat {
            size,
            phase: 0,
            rows: rows.collect(),
        };
        RowSpan::Repeat(range, repeat)
    }

    fn parts(&self, function: &crate::table::Function, found: &Range<u64>) -> Vec<RowSpan> {
        let rows = self.table.rows(function);
        let rows = rows.filter_map(|row| {
            let range = row.start.max(found.start)..row.end.min(found.end);
            (!range.is_empty()).then(|| part(&row, range, self.table.section()))
        });
        rows.collect()
    }

    /// The runs of an ORC table.
    fn each_run<E>(
        &self,
        report: &mut Report,
        mut each: impl FnMut(&SourceFunction, &mut Report) -> Result<(), E>,
    ) -> Result<(), E> {
        // One run is open at a time; it is passed on when something ends it.
        let mut run = SourceFunction {
            range: 0..0,
            parts: Vec::new(),
        };

        let mut flush = |run: &mut SourceFunction, report: &mut Report| -> Result<(), E> {
            if run.parts.is_empty() {
                return Ok(());
            }
            report.functions_read += 1;
            report.rows_read += run.parts.len() as u64;
            each(run, report)?;
            run.parts.clear();
            Ok(())
        };

        for function in self.table.functions() {
            for row in self.table.rows(function) {
                let nothing = says_nothing(row.rule) || row.start >= row.end;

                // A symbol starts a function, although ORC does not say so.
                let starts = self.file.symbol_at(row.start).is_some();
                if nothing || starts || row.start != run.range.end {
                    flush(&mut run, report)?;
                }

                if nothing {
                    continue;
                }

                if run.parts.is_empty() {
                    run.range = row.start..row.end;
                }
                run.range.end = row.end;
                run.parts.push(RowSpan::Row(row.start..row.end, *row.rule));
            }
        }

        // No row follows that would end the last run.
        flush(&mut run, report)
    }
}
