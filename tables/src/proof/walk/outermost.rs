//! Rows that say that there is no caller, in functions that return to one.
//!
//! That a function has no caller cannot be told from its code. But where it returns to the address that
//! was on top of the stack when it was entered, there was one at each instruction on the way.

use super::rows::{Rows, path};
use super::{Part, Walker};
use crate::proof::claim::Subject;
use crate::proof::derive;
use crate::proof::program::Entry;
use crate::proof::state::State;
use crate::proof::value::Value;
use crate::proof::verdict::Contradiction;
use std::ops::Range;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::RuleKind;

impl Walker<'_, '_> {
    /// Contradicts the rows that say that there is no caller on the way that ends with the return to it at
    /// `pc` (svma).
    ///
    /// A call on the way may never have returned, as in the first function of a thread. Then it must be
    /// known that the function has a caller: an instruction calls it, or its first row says so.
    pub(super) fn returns_to_caller(&mut self, pc: u64, state: &State, trail: Option<u32>) {
        let has_any = |part: &Part<'_>| part.rows.iter().any(Rows::has_outermost);
        if !self.parts.iter().any(has_any) {
            return;
        }
        let unit = &self.program.functions[self.parts[0].function];
        let entry = unit.range.start;
        if unit.entry != Entry::Call || self.program.is_start(entry) {
            return;
        }
        let is_called = !state.has_called || self.program.references().has_call(entry);

        let way = path(&self.jumps, trail);
        let starts = [entry].into_iter().chain(way.iter().map(|jump| jump.1));
        let ends = way.iter().map(|jump| jump.0).chain([pc]);
        let stretches: Vec<(u64, u64)> = starts.zip(ends).collect();
        for (jumps, (first, last)) in stretches.into_iter().enumerate() {
            // Some ways run on from one part into the next.
            let Some(part) = self.part_at(first).filter(|_| first <= last) else {
                continue;
            };
            for rows in 0..self.parts[part].rows.len() {
                let table = self.parts[part].rows[rows].number;
                if is_called || has_caller_at_entry(&self.parts[0], table) {
                    let range = first..last + 1;
                    self.contradict_outermost((part, rows), range, (pc, state), &way[..jumps]);
                }
            }
        }
    }

    /// Contradicts the rows of one table for a part that say so at addresses in `range` (svma). `pc`: where
    /// the function returns (svma), in which state.
    #[cold]
    fn contradict_outermost(
        &mut self,
        (part, rows): (usize, usize),
        range: Range<u64>,
        (pc, state): (u64, &State),
        way: &[(u64, u64)],
    ) {
        let Part {
            rows: all, verdict, ..
        } = &mut self.parts[part];
        let rows = &mut all[rows];
        let table = rows.table.kind();
        for (row, marks) in rows.rows.iter().zip(&mut rows.marks) {
            let meets = row.start < range.end && range.start < row.end;
            if row.rule.kind != RuleKind::Outermost || !meets {
                continue;
            }
            *marks |= 1;
            if verdict.contradicts(table, row, Subject::ReturnAddress) {
                continue;
            }
            let returns_here = range.contains(&pc) && row.start <= pc && pc < row.end;
            let there = Some(state).filter(|_| returns_here);
            verdict.contradictions.push(Contradiction {
                table,
                row: row.start..row.end,
                row_offset: row.offset,
                pc: there.map_or(row.start.max(range.start), |_| pc),
                rule: *row.rule,
                subject: Subject::ReturnAddress,
                found: Value::Unknown,
                sp: there.map_or(Value::Unknown, |state| state.reg(Reg::Rsp)),
                right: there.and_then(derive::rule),
                path: way.to_vec(),
                fits: None,
            });
        }
    }
}

/// Whether the row of table `number` for the first instruction says where a caller is.
fn has_caller_at_entry(entry: &Part<'_>, number: usize) -> bool {
    let rows = entry.rows.iter().find(|rows| rows.number == number);
    let first = rows.and_then(|rows| rows.rows.first());
    first.is_some_and(|row| row.rule.kind == RuleKind::Call && row.start == entry.body.range.start)
}
