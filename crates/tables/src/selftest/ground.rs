//! The proof of a file without defects, and of single functions with one.

use super::equal::MutatedFunction;
use crate::check::Options;
use crate::check::rounds::follow;
use crate::check::run::proven;
use crate::file::File;
use crate::proof::claims::UserChoice;
use crate::proof::program::{Entry, EntryEvidence, Program, Unit};
use crate::proof::verdict::{FunctionVerdict, Verdict};
use crate::proof::walk::Walker;
use crate::table::Function;
use hashbrown::HashMap;
use std::ops::Range;
use unwind_sim_unwind::cache::NewRow;
use unwind_sim_unwind::row::TableKind;

/// How often the entry of a function is reconsidered at most.
const RECONSIDERED_MAX: usize = 4;
/// The maximum number of functions from which one function is followed again.
const OWNERS_MAX: usize = 64;

/// What the proof said of a defect.
pub(super) enum ProofAnswer {
    /// It contradicts the row that is wrong, at this address (svma).
    Caught(u64),
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
    /// For each function: the number of its FDE in the first table; `usize::MAX` if another one
    /// defines it.
    numbers: Vec<usize>,
    /// For each function: those that lead into it.
    owners: Vec<Vec<usize>>,
}

impl<'f> Ground<'f> {
    /// Proves `file`; `None` if its first table is not `.eh_frame` or `.debug_frame`.
    pub(super) fn new(file: &'f File, choice: UserChoice) -> Option<Ground<'f>> {
        let mut program = Program::new(file);
        program.choose(choice);
        let table = program.tables.first()?;
        if !matches!(table.kind(), TableKind::EhFrame | TableKind::DebugFrame) {
            return None;
        }

        // By both, because several FDEs may have the same start.
        let by_place: HashMap<(u64, u64), usize> = (0..)
            .zip(table.functions())
            .map(|(number, f)| ((f.range.start, f.offset), number))
            .collect();

        let number = |u: &Unit| match u.table {
            0 => by_place.get(&(u.range.start, u.offset)).copied(),
            _ => None,
        };
        let numbers = program.functions.iter();
        let numbers: Vec<usize> = numbers.map(|u| number(u).unwrap_or(usize::MAX)).collect();

        let outcomes = follow(&mut program, 1);
        let mut owners = vec![Vec::new(); program.functions.len()];

        // Whoever leads into a function may be the one that shows its defect, and is followed
        // again.
        for (index, outcome) in outcomes.iter().enumerate() {
            let Some(outcome) = outcome else { continue };
            let parts = outcome.parts.iter().map(|p| p.function);
            let misfits = outcome.misfits.iter().map(|m| m.function);
            let jumps = outcome.callees.iter().chain(&outcome.jumped);
            let jumps = jumps.filter_map(|&target| {
                let function = program.function_at(target)?;
                let starts = program.functions[function].range.start == target;
                (starts && !program.is_called(target)).then_some(function)
            });
            for function in parts.chain(misfits).chain(jumps) {
                let owners: &mut Vec<usize> = &mut owners[function];
                if owners.len() < OWNERS_MAX && !owners.contains(&index) {
                    owners.push(index);
                }
            }
        }

        let found = proven(program, outcomes, &Options::default());
        let (functions, program) = (found.functions.iter(), found.program);

        // Only functions whose rows are all proven can show whether a defect is found.
        let proven = functions
            .filter(|f| f.verdict.verdict() == Verdict::Proven && f.verdict.rows > 0)
            .filter_map(|f| program.function_at(f.range.start));

        Some(Ground {
            proven: proven.collect(),
            numbers,
            owners,
            program,
        })
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
    pub(super) fn ask(&mut self, index: usize, pair: &MutatedFunction<'_>) -> ProofAnswer {
        let range = pair.range.start..pair.changed_end;
        let Some(former) = self.put(index, range.clone(), pair.changed) else {
            return ProofAnswer::Proven;
        };
        let answer = self.judge(index, pair);
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

    fn judge(&mut self, index: usize, pair: &MutatedFunction<'_>) -> ProofAnswer {
        for _ in 0..RECONSIDERED_MAX {
            let (answer, seen) = self.follow(index, pair);
            // Parts that only this function leads to.
            let is_orphan = |i: usize| {
                let mut owners = self.owners[i].iter();
                self.program.functions[i].entry == Entry::Part && owners.all(|&o| o == index)
            };
            match self.program.reconsider(index, seen, is_orphan) {
                Some(entry) => self.program.functions[index].entry = entry,
                None => return answer,
            }
        }
        self.follow(index, pair).0
    }

    /// Follows function `index` and all that lead to it.
    fn follow(&self, index: usize, pair: &MutatedFunction<'_>) -> (ProofAnswer, EntryEvidence) {
        // The same walker as in the proof, on tables with the defect.
        let mut walker = Walker::new(&self.program);
        let mut owners = self.owners[index].clone();
        owners.retain(|&owner| owner != index);
        // A part is only entered from others.
        if self.program.functions[index].entry != Entry::Part {
            owners.push(index);
        }

        let start = pair.range.start;
        let mut seen = EntryEvidence::default();
        let mut verdict = FunctionVerdict::default();
        let mut reached = Vec::new();
        let mut misfits = Vec::new();

        for &owner in &owners {
            let Some(followed) = walker.follow(owner) else {
                continue;
            };
            seen.is_called |= followed.callees.contains(&start);
            seen.is_jumped_to |= followed.jumped.contains(&start);
            seen.pops_error_code |= owner == index && followed.pops_error_code;
            for found in followed.found {
                if found.function == index {
                    seen.is_led_to |= owner != index;
                    verdict.add(found.verdict);
                    reached.push(found.body);
                }
            }
            let here = followed.misfits.into_iter();
            misfits.extend(here.filter(|misfit| misfit.function == index));
        }

        seen.is_led_to |= !misfits.is_empty();
        for misfit in misfits {
            let at = misfit.target.wrapping_sub(start);
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            // Where others fit, this way is never taken.
            if !reached.iter().any(|body| body.reached.has(at)) {
                verdict.add(misfit.verdict);
            }
        }

        // In order of address, so that the first doubt is always the same.
        verdict.sort();

        let mut contradictions = verdict.contradictions.iter();
        let caught = contradictions.find(|c| pair.differs_at(c.pc));
        let doubt = verdict.doubts.first();
        seen.is_proven = verdict.contradictions.is_empty() && doubt.is_none();

        let answer = match (caught, verdict.contradictions.first(), doubt) {
            (Some(caught), ..) => ProofAnswer::Caught(caught.pc),
            (_, Some(other), _) => ProofAnswer::Elsewhere(other.pc),
            (.., Some((doubt, at))) => ProofAnswer::Unproven(doubt.as_str(), *at),
            _ if reached.is_empty() => ProofAnswer::Unproven("no-entry", start),
            _ => ProofAnswer::Proven,
        };
        (answer, seen)
    }
}
