//! Holds rows against the state at an instruction, and keeps what was found.

use super::{Jump, Part};
use crate::proof::claim::{self, Outcome, Subject};
use crate::proof::derive;
use crate::proof::program::Program;
use crate::proof::state::State;
use crate::proof::value::Value;
use crate::proof::verdict::{Contradiction, Doubt, FunctionVerdict};
use crate::table::{Row, Table};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::RuleKind;

/// The rows of one table for a function.
pub(super) struct Rows<'p> {
    pub(super) number: usize,
    pub(super) table: &'p Table,
    pub(super) rows: Vec<Row<'p>>,
    pub(super) marks: Vec<u8>,
    /// The row used last.
    pub(super) last: usize,
}

impl Rows<'_> {
    /// The register that the CFA is based on at `pc`.
    pub(super) fn cfa_base(&mut self, pc: u64) -> Option<Reg> {
        let index = self.find(pc)?;
        self.rows[index].rule.cfa.base_reg()
    }

    /// Whether the row for `pc` does not fit `state` there.
    pub(super) fn contradicts(&mut self, pc: u64, state: &State) -> bool {
        let mut wrong = false;
        if let Some(index) = self.find(pc) {
            claim::judge(self.table, &self.rows[index], pc, state, |_, outcome| {
                wrong |= matches!(outcome, Outcome::Contradicted { .. });
            });
        }
        wrong
    }

    /// The number of the row for `pc`.
    #[inline]
    pub(super) fn find(&mut self, pc: u64) -> Option<usize> {
        let inside = |row: &Row<'_>| row.start <= pc && pc < row.end;
        if self.rows.get(self.last).is_some_and(inside) {
            return Some(self.last);
        }
        let after = self.rows.partition_point(|row| row.start <= pc);
        let index = after.checked_sub(1)?;
        self.last = index;
        inside(&self.rows[index]).then_some(index)
    }
}

/// Holds the rows for `pc` against the state there.
#[inline]
pub(super) fn judge(
    part: &mut Part<'_>,
    program: &Program<'_>,
    jumps: &[Jump],
    pc: u64,
    state: &State,
    trail: Option<u32>,
    judged: &mut u32,
) {
    let same_state = *judged == state.version();
    *judged = state.version();
    for rows in &mut part.rows {
        let last = rows.last;
        let Some(index) = rows.find(pc) else {
            continue;
        };
        if same_state && last == index {
            continue;
        }
        let row = rows.rows[index];
        match row.rule.kind {
            RuleKind::Outermost => {
                if !program.is_start(pc) {
                    rows.marks[index] |= 2;
                    part.verdict.doubt(Doubt::Outermost, pc);
                }
                continue;
            }
            RuleKind::Signal => {
                rows.marks[index] |= 2;
                part.verdict.doubt(Doubt::SignalFrame, pc);
                continue;
            }
            _ => {}
        }
        let (verdict, marks) = (&mut part.verdict, &mut rows.marks[index]);
        let table = rows.table;
        claim::judge(table, &row, pc, state, |subject, outcome| match outcome {
            Outcome::Proven { below_sp } => verdict.below_sp += u32::from(below_sp),
            Outcome::Contradicted { .. } if state.is_guessed => {
                *marks |= 2;
                verdict.doubt(Doubt::Guessed, pc);
            }
            Outcome::Contradicted { found } => {
                *marks |= 1;
                if !verdict.contradicts(table.kind(), &row, subject) {
                    let path = path(jumps, trail);
                    contradict(verdict, (table, &row, pc), state, (subject, found), &path);
                }
            }
            Outcome::Unproven => {
                *marks |= 2;
                let sp = state.reg(Reg::Rsp);
                verdict.doubt(
                    match subject {
                        Subject::Cfa if sp == Value::Unknown => Doubt::StackPointer,
                        Subject::Cfa if matches!(sp, Value::Below { .. }) => Doubt::Distance,
                        _ => Doubt::Value,
                    },
                    pc,
                );
            }
        });
    }
}

/// The jumps that led to a place, in order.
pub(super) fn path(jumps: &[Jump], mut trail: Option<u32>) -> Vec<(u64, u64)> {
    let mut path = Vec::new();
    while let Some(jump) = trail.and_then(|t| jumps.get(t as usize)) {
        path.push((jump.from, jump.to));
        trail = jump.before;
    }
    path.reverse();
    path
}

/// Adds a contradiction of a row at an address, in a state reached by `path`.
#[cold]
pub(super) fn contradict(
    verdict: &mut FunctionVerdict,
    (table, row, pc): (&Table, &Row<'_>, u64),
    state: &State,
    (subject, found): (Subject, Value),
    path: &[(u64, u64)],
) {
    verdict.contradictions.push(Contradiction {
        table: table.kind(),
        row: row.start..row.end,
        row_offset: row.offset,
        pc,
        rule: *row.rule,
        subject,
        found,
        sp: state.reg(Reg::Rsp),
        right: derive::rule(state),
        path: path.to_vec(),
    });
}
