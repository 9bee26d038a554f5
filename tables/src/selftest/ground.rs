//! The proof of a file without defects, and of single functions with one.

use super::equal::Pair;
use crate::check::{Hole, Options, check, gaps};
use crate::file::File;
use crate::proof::program::{Entry, Program, Returns};
use crate::proof::verdict::{FunctionVerdict, Verdict};
use crate::proof::walk::{Followed, Walker};
use crate::table::Function;
use hashbrown::HashMap;
use std::ops::Range;
use unwind_sim_unwind::cache::NewRow;
use unwind_sim_unwind::row::TableKind;

/// The maximum number of rounds in which functions that never return are found.
const ROUNDS_MAX: usize = 16;
/// The maximum number of functions from which one function is followed again.
const OWNERS_MAX: usize = 64;

/// What the proof said of a defect.
pub(super) enum Answer {
    /// It contradicts the row that is wrong, at this address (svma).
    Caught(u64),
    /// It found code without a row where the range was shortened.
    Uncovered,
    /// It contradicts another row.
    Elsewhere(u64),
    /// It could not tell, and why.
    Unproven(&'static str, u64),
    /// It proves the function.
    Proven,
}

/// A program whose functions' returns are known.
pub(super) struct Ground<'f> {
    pub(super) program: Program<'f>,
    /// The functions that are proven, and from how many their code was reached.
    pub(super) proven: Vec<usize>,
    /// For each function: the number of its FDE in the table.
    numbers: Vec<usize>,
    /// For each function: those that lead into it.
    owners: Vec<Vec<usize>>,
}

impl<'f> Ground<'f> {
    /// Proves `file`; `None` if its first table is not `.eh_frame`.
    pub(super) fn new(file: &'f File) -> Option<Ground<'f>> {
        let program = Program::new(file);
        let table = program.tables.first()?;
        if table.kind() != TableKind::EhFrame {
            return None;
        }
        let by_place: HashMap<(u64, u64), usize> = (0..)
            .zip(table.functions())
            .map(|(number, f)| ((f.range.start, f.offset), number))
            .collect();
        let number = |u: &crate::proof::program::Unit| by_place.get(&(u.range.start, u.offset));
        let numbers = program.functions.iter().map(number);
        let numbers: Option<Vec<usize>> = numbers.map(Option::<&usize>::copied).collect();
        let report = check(file, &Options::default());
        let functions = report.functions.iter().enumerate();
        let proven = functions
            .filter(|(_, f)| f.verdict.verdict() == Verdict::Proven && f.verdict.rows > 0)
            .map(|(index, _)| index);
        let mut ground = Ground {
            proven: proven.collect(),
            numbers: numbers?,
            owners: vec![Vec::new(); program.functions.len()],
            program,
        };
        ground.follow_all();
        Some(ground)
    }

    /// Learns which functions return, and which lead into which.
    fn follow_all(&mut self) {
        let count = self.program.functions.len();
        let entered = |&i: &usize| self.program.functions[i].entry != Entry::Part;
        let todo: Vec<usize> = (0..count).filter(entered).collect();
        for _ in 0..ROUNDS_MAX {
            let mut walker = Walker::new(&self.program);
            let (mut news, mut called) = (false, Vec::new());
            for &index in &todo {
                let Some(followed) = walker.follow(index) else {
                    continue;
                };
                called.extend_from_slice(&followed.called);
                let never = !followed.returns;
                if never && self.program.functions[index].entry == Entry::Call {
                    news |= self.program.set_returns(index, Returns::Never);
                }
                let found = followed.found.iter().map(|f| f.function);
                let misfits = followed.misfits.iter().map(|m| m.function);
                for function in found.chain(misfits) {
                    let owners = &mut self.owners[function];
                    if owners.len() < OWNERS_MAX && !owners.contains(&index) {
                        owners.push(index);
                    }
                }
            }
            drop(walker);
            self.program.learn_called(called.iter());
            if !news {
                return;
            }
        }
    }

    /// The rows of function `index`.
    pub(super) fn rows(&self, index: usize) -> Vec<NewRow> {
        let table = self.program.tables.first();
        let number = self.numbers.get(index).copied().unwrap_or(usize::MAX);
        let function = table.and_then(|t| Some((t, t.functions().get(number)?)));
        let rows = function.map(|(table, function)| table.rows(function));
        let rows = rows.into_iter().flatten().map(|row| NewRow {
            start: row.start,
            offset: row.offset,
            rule: *row.rule,
        });
        rows.collect()
    }

    /// Whether function `index` has all its rows.
    pub(super) fn is_whole(&self, index: usize) -> bool {
        let table = self.program.tables.first();
        let number = self.numbers.get(index).copied().unwrap_or(usize::MAX);
        let function = table.and_then(|table| table.functions().get(number));
        function
            .is_some_and(|f| f.error.is_none() && f.range == self.program.functions[index].range)
    }

    /// Proves function `index` with the changed rows of `pair`.
    pub(super) fn ask(&mut self, index: usize, pair: &Pair<'_>) -> Answer {
        let range = pair.range.start..pair.changed_end;
        let Some(former) = self.put(index, range.clone(), pair.changed) else {
            return Answer::Proven;
        };
        let answer = if pair.changed_end < pair.range.end {
            self.uncovered(&(pair.changed_end..pair.range.end))
        } else {
            self.judge(index, pair)
        };
        let number = self.numbers[index];
        if let Some(table) = self.program.tables.first_mut() {
            table.restore(number, former);
        }
        self.program.update(index, number);
        answer
    }

    fn put(&mut self, index: usize, range: Range<u64>, rows: &[NewRow]) -> Option<Function> {
        let number = *self.numbers.get(index)?;
        let former = self
            .program
            .tables
            .first_mut()?
            .replace(number, range, rows);
        self.program.update(index, number);
        former
    }

    fn uncovered(&self, lost: &Range<u64>) -> Answer {
        let gaps = gaps(&self.program);
        let found = gaps.iter().any(|gap| {
            gap.hole == Hole::NoRow && gap.range.start < lost.end && lost.start < gap.range.end
        });
        match found {
            true => Answer::Uncovered,
            false => Answer::Proven,
        }
    }

    fn judge(&self, index: usize, pair: &Pair<'_>) -> Answer {
        let mut walker = Walker::new(&self.program);
        let mut owners = self.owners[index].clone();
        if self.program.functions[index].entry == Entry::Part {
            owners.retain(|&owner| owner != index);
        } else if !owners.contains(&index) {
            owners.push(index);
        }
        let followed: Vec<Followed> = owners.iter().filter_map(|&i| walker.follow(i)).collect();
        let mut verdict = FunctionVerdict::default();
        let mut reached = None;
        for found in followed.iter().flat_map(|f| &f.found) {
            if found.function == index {
                verdict.add(found.verdict.clone());
                reached.get_or_insert_with(Vec::new).push(&found.body);
            }
        }
        for misfit in followed.iter().flat_map(|f| &f.misfits) {
            let at = misfit.target.wrapping_sub(pair.range.start);
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            let bodies = reached.iter().flatten();
            // Where others fit, this way is never taken.
            if misfit.function == index && !bodies.into_iter().any(|b| b.reached.has(at)) {
                verdict.add(misfit.verdict.clone());
            }
        }
        verdict.sort();
        let mut contradictions = verdict.contradictions.iter();
        if let Some(caught) = contradictions.find(|c| pair.differs_at(c.pc)) {
            return Answer::Caught(caught.pc);
        }
        match (verdict.contradictions.first(), verdict.doubts.first()) {
            (Some(other), _) => Answer::Elsewhere(other.pc),
            (None, Some((doubt, at))) => Answer::Unproven(doubt.as_str(), *at),
            (None, None) if reached.is_none() => Answer::Unproven("no-entry", pair.range.start),
            (None, None) => Answer::Proven,
        }
    }
}
