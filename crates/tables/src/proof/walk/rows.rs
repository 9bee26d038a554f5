//! Holds rows against the state at an instruction, and keeps what was found.

use super::beyond::unwinder;
use super::guesses::Guesses;
use super::outermost::OutermostRow;
use super::{FunctionWalk, Jump};
use crate::proof::claim::{self, CommonRow, Outcome, Subject};
use crate::proof::claims::Claims;
use crate::proof::derive;
use crate::proof::program::Program;
use crate::proof::signal;
use crate::proof::state::State;
use crate::proof::value::{Anchor, Value};
use crate::proof::verdict::{Assumption, Contradiction, Doubt, FunctionVerdict, GuessedClaim};
use crate::table::{Row, Table};
use std::ops::Range;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::rule::RuleKind;

/// The rows of one table for a function.
pub(super) struct Rows<'p> {
    pub(super) number: usize,
    pub(super) table: &'p Table,
    /// The bit of the unwinder that reads the table.
    unwinder: u8,
    pub(super) claims: Claims,
    pub(super) rows: Vec<Row<'p>>,
    /// The number of the row that was last asked for in its usual form, and that form, if it has it.
    usual: Option<(usize, Option<CommonRow>)>,
    pub(super) marks: Vec<u8>,
    /// The row used last.
    last: usize,
    /// The row judged last on the way that is being followed.
    judged: Option<usize>,
    /// Whether the row judged last names a slot below rsp that still has its value.
    below_sp: bool,
    /// The rows that say that there is no caller, where one may be.
    pub(super) outermost: Vec<OutermostRow>,
}

impl<'p> Rows<'p> {
    /// The rows of table `number` for the addresses in `range` (svma), of which `claims` are judged;
    /// `None` if it has none.
    pub(super) fn new(
        (number, table): (usize, &'p Table),
        range: &Range<u64>,
        claims: Claims,
    ) -> Option<Rows<'p>> {
        let rows = table.rows_in(range);
        (!rows.is_empty()).then(|| Rows {
            number,
            table,
            unwinder: unwinder(table.kind()),
            claims,
            marks: vec![0; rows.len()],
            usual: None,
            rows,
            last: 0,
            judged: None,
            below_sp: false,
            outermost: Vec::new(),
        })
    }

    /// Whether `state` proves all claims of row `index`, and if so, whether a slot lies below rsp.
    /// `None` if each claim has to be judged.
    #[inline]
    fn proven(&mut self, index: usize, state: &State) -> Option<bool> {
        if self.usual.as_ref().is_none_or(|usual| usual.0 != index) {
            self.usual = Some((
                index,
                CommonRow::new(self.table, self.rows[index].rule, &self.claims),
            ));
        }
        let usual = self.usual.as_ref().and_then(|usual| usual.1.as_ref());
        let proven = usual.and_then(|usual| state.proves(usual));
        debug_assert!(
            proven.is_none() || proven == self.each_proven(index, state),
            "a row is proven at once, but not claim by claim"
        );
        proven
    }

    /// What [`Rows::proven`] says, found claim by claim.
    fn each_proven(&self, index: usize, state: &State) -> Option<bool> {
        let row = &self.rows[index];
        let mut proven = Some(false);
        claim::judge(
            (self.table, &self.claims),
            row,
            row.start,
            state,
            &[],
            |_, outcome| {
                proven = match (proven, outcome) {
                    (Some(before), Outcome::Proven { below_sp }) => Some(before || below_sp),
                    _ => None,
                };
            },
        );
        proven
    }

    /// The register that the CFA is based on at `pc`.
    pub(super) fn cfa_base(&mut self, pc: u64) -> Option<Reg> {
        let index = self.find(pc)?;
        self.rows[index].rule.cfa.base_reg()
    }

    /// Whether the row for `pc` does not fit `state` there.
    pub(super) fn contradicts(&mut self, pc: u64, state: &State, anchors: &[Anchor]) -> bool {
        let mut wrong = false;
        if let Some(index) = self.find(pc)
            && self.proven(index, state).is_none()
        {
            let row = &self.rows[index];
            claim::judge(
                (self.table, &self.claims),
                row,
                pc,
                state,
                anchors,
                |_, outcome| {
                    wrong |= matches!(outcome, Outcome::Contradicted { .. });
                },
            );
        }
        wrong
    }

    /// Holds each claim of row `index` against the state at `pc`.
    fn judge_claims(
        &mut self,
        verdict: &mut FunctionVerdict,
        (index, pc): (usize, u64),
        state: &State,
        anchors: &[Anchor],
        (guesses, jumps, trail): (&mut Guesses, &[Jump], Option<u32>),
    ) {
        let (table, row) = (self.table, self.rows[index]);
        let marks = &mut self.marks[index];
        let lies_below = &mut self.below_sp;

        // Guesses are explained in the end, when it is known on which way they rest.
        let mut guessed = |subject, found| {
            let claim = GuessedClaim {
                table: table.kind(),
                row: row.start,
                subject,
                found,
            };
            guesses.add(claim, pc, trail);
        };

        // Each claim of the row has an outcome, and one that is not proven marks the row.
        let each = |subject, outcome| match outcome {
            Outcome::Proven { below_sp } => *lies_below |= below_sp,
            Outcome::Guessed => {
                *marks |= 2;
                verdict.doubt(Doubt::Guessed, pc);
                guessed(subject, Value::Guessed);
            }
            Outcome::ByCallee => {
                *marks |= 2;
                verdict.doubt(Doubt::Callee, pc);
            }
            Outcome::Overwritten => {
                *marks |= 2;
                verdict.doubt(Doubt::RedZone, pc);
            }
            Outcome::Contradicted { found } if state.is_guessed => {
                // The way may not exist.
                *marks |= 2;
                verdict.doubt(Doubt::Guessed, pc);
                guessed(subject, found);
            }
            Outcome::Contradicted { found } => {
                *marks |= 1;
                // One contradiction is enough for each claim of a row.
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
        };

        claim::judge((table, &self.claims), &row, pc, state, anchors, each);
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

/// A row that an unwinder reads at an instruction that was reached.
pub(crate) const REACHED: u8 = 4;

/// Holds the rows for `pc` against the state there. Returns whether a slot that they name lies below
/// rsp. `judged` is the version of the state judged last on this way.
#[inline]
pub(super) fn judge(
    part: &mut FunctionWalk<'_>,
    (program, anchors): (&Program<'_>, &[Anchor]),
    jumps: &[Jump],
    pc: u64,
    state: &State,
    trail: Option<u32>,
    judged: &mut Option<u32>,
) -> bool {
    // Versions are equal only if nothing that matters to rows has changed.
    let same_state = *judged == Some(state.version());
    *judged = Some(state.version());

    let mut is_below_sp = false;

    // Whoever has rows at the function's start must have one at each of its instructions.
    let mut missing = part.missing.expected_at(pc);
    for rows in &mut part.rows {
        let Some(index) = rows.find(pc) else {
            // Between two rows nothing was judged, so the next row is judged in any case.
            rows.judged = None;
            continue;
        };
        missing &= !rows.unwinder;
        // The same row and the same state: nothing else can come out.
        if same_state && rows.judged == Some(index) {
            is_below_sp |= rows.below_sp;
            continue;
        }

        rows.judged = Some(index);
        rows.marks[index] |= REACHED;
        // Where a program starts there is nothing to return to, unless it is called as well.
        if program.begins_at(pc) && rows.rows[index].rule.kind == RuleKind::Call {
            rows.marks[index] |= 2;
            part.verdict.doubt(Doubt::Outermost, pc);
        }

        // Rows of the usual form are proven by comparing a few numbers.
        if let Some(below_sp) = rows.proven(index, state) {
            rows.below_sp = below_sp;
            is_below_sp |= below_sp;
            continue;
        }

        rows.below_sp = false;
        let row = rows.rows[index];
        match row.rule.kind {
            RuleKind::Outermost => {
                if !program.is_start(pc) {
                    rows.outermost
                        .extend(OutermostRow::new(index, pc, state, trail));
                    rows.marks[index] |= 2;
                    part.verdict.doubt(Doubt::Outermost, pc);
                }
                continue;
            }
            RuleKind::Signal if part.is_signal => {
                let (verdict, marks) = (&mut part.verdict, &mut rows.marks[index]);
                judge_signal(verdict, marks, (rows.table, &row, pc), state);
                continue;
            }
            _ => {}
        }

        // All other rows are judged claim by claim.
        let way = (&mut part.guesses, jumps, trail);
        rows.judge_claims(&mut part.verdict, (index, pc), state, anchors, way);
        is_below_sp |= rows.below_sp;
    }

    // A missing row is only shown by a way that is surely taken.
    if missing != 0
        && !state.is_dead
        && !state.is_guessed
        && let Some(offset) = part.body.offset(pc)
    {
        let len = part.body.len();
        part.missing.add(missing, len, (offset, pc), state, trail);
    }
    is_below_sp
}

/// Holds the rows that walks read for the frame of a call against `state`, which is that during the
/// call: those for the return address - 1, which may begin inside of the call's instruction. SFrame
/// has no such lookup: its readers ask for the return address.
pub(super) fn judge_call(
    part: &mut FunctionWalk<'_>,
    anchors: &[Anchor],
    jumps: &[Jump],
    (pc, next): (u64, u64),
    state: &State,
    trail: Option<u32>,
) {
    let lookup = next.wrapping_sub(1);
    for rows in &mut part.rows {
        if rows.table.kind() == TableKind::Sframe {
            continue;
        }
        let Some(index) = rows.find(lookup) else {
            continue;
        };

        // The row at the call is read by walks, so it counts as reached.
        rows.marks[index] |= REACHED;
        if rows.rows[index].rule.kind == RuleKind::Outermost || part.is_signal {
            continue;
        }

        if rows.proven(index, state).is_none() {
            // What is judged next is judged by its own.
            rows.judged = None;
            let way = (&mut part.guesses, jumps, trail);
            rows.judge_claims(&mut part.verdict, (index, pc), state, anchors, way);
        }
    }
}

/// Holds a signal frame's row against where the kernel saves registers.
#[cold]
fn judge_signal(
    verdict: &mut FunctionVerdict,
    marks: &mut u8,
    (table, row, pc): (&Table, &Row<'_>, u64),
    state: &State,
) {
    // The places of the registers are known from the handler's return on, when rsp is this
    // (`signal.rs`).
    if state.reg(Reg::Rsp) != Value::frame(0) {
        *marks |= 2;
        return verdict.doubt(Doubt::SignalFrame, pc);
    }

    // How the kernel lays the frame out is an assumption, see `signal.rs`.
    verdict.assumptions.add(Assumption::SignalFrames);
    signal::judge(table, row.rule, |subject, outcome| match outcome {
        Some(true) => {}
        Some(false) => {
            *marks |= 1;
            if !verdict.contradicts(table.kind(), row, subject) {
                contradict(
                    verdict,
                    (table, row, pc),
                    state,
                    (subject, Value::Computed),
                    &[],
                );
            }
        }
        None => {
            *marks |= 2;
            verdict.doubt(Doubt::SignalFrame, pc);
        }
    });
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
        fits: None,
    });
}
