//! Runs the proof over all functions of a file.

use super::cover::gaps;
use super::{Checked, Report};
use crate::file::File;
use crate::proof::body::Bits;
use crate::proof::program::{Entry, Program, Returns};
use crate::proof::verdict::{Assumption, Assumptions, Doubt, FunctionVerdict, Verdict};
use crate::proof::walk::{Followed, Found, Misfit, Walker};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The maximum number of rounds in which functions are found that never return, each because of
/// those of the round before.
const ROUNDS_MAX: usize = 16;
/// The number of functions that a thread takes at once.
const BATCH: usize = 32;

/// How to check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// The number of threads; the report does not depend on it.
    pub threads: usize,
    /// What proofs may rest on.
    pub assume: Assumptions,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            threads: 1,
            assume: Assumptions::ALL,
        }
    }
}

/// What following one function gave, without its instructions.
struct Outcome {
    parts: Vec<Part>,
    returns: Returns,
    breaks_the_abi: bool,
    callees: Vec<u64>,
    called: Vec<u64>,
    taken_as_final: Vec<u64>,
    misfits: Vec<Misfit>,
    steps: u32,
}

/// What was found in a function, whoever led there.
struct Part {
    function: usize,
    verdict: FunctionVerdict,
    /// The bytes reached, unless it is all of them.
    reached: Option<Bits>,
    marks: Vec<(usize, Vec<u8>)>,
}

/// A program whose functions were followed.
pub(crate) struct Proven<'f> {
    /// The program, which knows which of its functions return.
    pub(crate) program: Program<'f>,
    /// For each function: how its rows turned out.
    pub(crate) functions: Vec<Checked>,
    /// For each function: the numbers of those that lead into it.
    pub(crate) owners: Vec<Vec<u32>>,
    steps: u64,
}

/// Proves what can be proven of all rows of `file`.
pub fn check(file: &File, options: &Options) -> Report {
    let Proven {
        program,
        functions,
        steps,
        ..
    } = prove(Program::new(file), options);
    let mut report = Report {
        tables: program.tables.iter().map(|t| t.kind()).collect(),
        gaps: gaps(&program),
        steps,
        functions,
        ..Report::default()
    };
    for table in &program.tables {
        let problems = table.problems().iter();
        report.problems.extend(problems.map(ToString::to_string));
    }
    report
        .functions
        .extend(program.overlapping.iter().map(shared));
    report.functions.sort_by_key(|f| f.range.start);
    report
}

/// Follows all functions of `program`.
pub(crate) fn prove<'f>(mut program: Program<'f>, options: &Options) -> Proven<'f> {
    let count = program.functions.len();
    let mut outcomes: Vec<Option<Outcome>> = Vec::new();
    outcomes.resize_with(count, || None);
    let mut todo: Vec<usize> = (0..count)
        .filter(|&i| program.functions[i].entry != Entry::Part)
        .collect();
    for _ in 0..ROUNDS_MAX {
        follow_all(&program, &todo, options.threads, &mut outcomes);
        let called = outcomes.iter().flatten().flat_map(|o| &o.called);
        let called = program.learn_called(called);
        todo = callers_of_news(&program, &todo, &outcomes);
        todo.extend(called);
        todo.sort_unstable();
        todo.dedup();
        if todo.is_empty() {
            break;
        }
    }
    let steps = outcomes.iter().flatten().map(|o| u64::from(o.steps)).sum();
    let mut owners = vec![Vec::new(); count];
    for (owner, outcome) in (0..).zip(&outcomes) {
        for part in outcome.iter().flat_map(|o| &o.parts) {
            owners[part.function].push(owner);
        }
    }
    Proven {
        functions: merge(&program, outcomes, options),
        program,
        owners,
        steps,
    }
}

/// Follows the functions `todo`.
fn follow_all(
    program: &Program<'_>,
    todo: &[usize],
    threads: usize,
    outcomes: &mut [Option<Outcome>],
) {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut walker = Walker::new(program);
        let mut mine = Vec::new();
        loop {
            let first = next.fetch_add(BATCH, Ordering::Relaxed);
            let Some(batch) = todo.get(first..) else {
                break;
            };
            if batch.is_empty() {
                break;
            }
            for &index in batch.iter().take(BATCH) {
                let followed = walker.follow(index);
                mine.push((index, followed.map(|f| outcome(program, f, &mut walker))));
            }
        }
        mine
    };
    let done: Vec<Vec<(usize, Option<Outcome>)>> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mine = work();
        let joined = others.into_iter().map(|other| match other.join() {
            Ok(theirs) => theirs,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        std::iter::once(mine).chain(joined).collect()
    });
    for (index, outcome) in done.into_iter().flatten() {
        outcomes[index] = outcome;
    }
}

fn outcome(program: &Program<'_>, followed: Followed, walker: &mut Walker<'_, '_>) -> Outcome {
    let Followed {
        found,
        returns,
        surely_returns,
        breaks_the_abi,
        callees,
        called,
        taken_as_final,
        misfits,
        steps,
    } = followed;
    let parts = found.into_iter().enumerate().map(|(number, found)| {
        let Found {
            function,
            verdict,
            mut body,
            marks,
        } = found;
        // Another function may lead to what this one did not reach by itself.
        let is_whole = number == 0 && body.unreached(program.file).is_none();
        let reached = (!is_whole).then(|| std::mem::take(&mut body.reached));
        walker.recycle(body);
        Part {
            function,
            verdict,
            reached,
            marks,
        }
    });
    let parts = parts.collect();
    Outcome {
        parts,
        returns: match (returns, surely_returns) {
            (false, _) => Returns::Never,
            (_, true) => Returns::Surely,
            _ => Returns::Maybe,
        },
        breaks_the_abi,
        callees,
        called,
        taken_as_final,
        misfits,
        steps,
    }
}

/// Remembers which functions never return, and returns those that call one of which that is news.
fn callers_of_news(
    program: &Program<'_>,
    todo: &[usize],
    outcomes: &[Option<Outcome>],
) -> Vec<usize> {
    let mut is_news = vec![false; program.functions.len()];
    let mut any = false;
    for &index in todo {
        let returns = outcomes[index].as_ref().map(|o| o.returns);
        let entered = program.functions[index].entry == Entry::Call;
        let returns = returns.filter(|_| entered).unwrap_or(Returns::Maybe);
        let is_new = program.set_returns(index, returns);
        is_news[index] = is_new && returns == Returns::Never;
        any |= is_new;
    }
    if !any {
        return Vec::new();
    }
    let calls_news = |outcome: &Outcome| {
        let mut taken = outcome.taken_as_final.iter();
        if taken.any(|&target| program.surely_returns(target)) {
            return true;
        }
        let mut callees = outcome.callees.iter();
        callees.any(|&target| {
            let callee = program.starting_at(target);
            callee.is_some_and(|c| is_news[c])
        })
    };
    let all = outcomes.iter().enumerate();
    all.filter(|(_, o)| o.as_ref().is_some_and(calls_news))
        .map(|(index, _)| index)
        .collect()
}

/// Puts together what each function's own analysis and those of others found in it.
fn merge(program: &Program<'_>, outcomes: Vec<Option<Outcome>>, options: &Options) -> Vec<Checked> {
    let mut merged: Vec<Option<Part>> = Vec::new();
    merged.resize_with(outcomes.len(), || None);
    let breaks = |target: &u64| {
        let callee = program.starting_at(*target).map(|c| &outcomes[c]);
        callee.is_some_and(|o| o.as_ref().is_some_and(|o| o.breaks_the_abi))
    };
    let broken: Vec<bool> = outcomes
        .iter()
        .map(|o| o.as_ref().is_some_and(|o| o.called.iter().any(breaks)))
        .collect();
    let mut misfits = Vec::new();
    for (function, outcome) in outcomes.into_iter().enumerate() {
        let Some(outcome) = outcome else { continue };
        misfits.extend(outcome.misfits.into_iter().map(|m| (function, m)));
        for part in outcome.parts {
            match &mut merged[part.function] {
                Some(known) => known.add(part),
                place => *place = Some(part),
            }
        }
    }
    for (from, misfit) in misfits {
        settle(program, &mut merged, from, misfit);
    }
    let functions = merged.into_iter().zip(&program.functions).zip(broken);
    functions
        .map(|((part, unit), broken)| {
            let mut verdict = match part {
                Some(part) => part.finish(program),
                None => {
                    let mut verdict = FunctionVerdict::default();
                    let doubt = match unit.entry {
                        Entry::Part => Doubt::NoEntry,
                        _ => Doubt::NoCode,
                    };
                    verdict.doubt(doubt, unit.range.start);
                    verdict
                }
            };
            let is_too_much = verdict.assumptions.iter().any(|a| !options.assume.has(a));
            if is_too_much && verdict.verdict() == Verdict::Proven {
                verdict.doubt(Doubt::Assumption, unit.range.start);
            }
            if broken && verdict.verdict() == Verdict::Proven {
                verdict.doubt(Doubt::Callee, unit.range.start);
            }
            verdict.sort();
            Checked {
                range: unit.range.clone(),
                entry: unit.entry,
                verdict,
            }
        })
        .collect()
}

/// A function whose code another one has, too: only that one is followed.
fn shared(range: &Range<u64>) -> Checked {
    let mut verdict = FunctionVerdict::default();
    verdict.doubt(Doubt::Overlap, range.start);
    Checked {
        range: range.clone(),
        entry: Entry::Call,
        verdict,
    }
}

/// A jump whose frame does not fit is never taken if others fit; otherwise the row is wrong.
fn settle(program: &Program<'_>, merged: &mut [Option<Part>], from: usize, misfit: Misfit) {
    let start = program.functions[misfit.function].range.start;
    let offset = usize::try_from(misfit.target.wrapping_sub(start)).unwrap_or(usize::MAX);
    let known = merged[misfit.function].as_ref();
    let fits = known.is_some_and(|p| p.reached.as_ref().is_none_or(|r| r.has(offset)));
    let place = if fits {
        if let Some(part) = &mut merged[from] {
            part.verdict.assumptions.add(Assumption::Unreachable);
        }
        return;
    } else {
        &mut merged[misfit.function]
    };
    match place {
        Some(part) => part.verdict.add(misfit.verdict),
        None => {
            *place = Some(Part {
                function: misfit.function,
                verdict: misfit.verdict,
                reached: Some(Bits::default()),
                marks: Vec::new(),
            });
        }
    }
}

impl Part {
    fn add(&mut self, other: Part) {
        self.verdict.add(other.verdict);
        match (&mut self.reached, &other.reached) {
            (Some(mine), Some(theirs)) => mine.add_all(theirs),
            (mine, _) => *mine = None,
        }
        for (number, marks) in other.marks {
            match self.marks.iter_mut().find(|m| m.0 == number) {
                Some((_, mine)) => {
                    for (mine, theirs) in mine.iter_mut().zip(marks) {
                        *mine |= theirs;
                    }
                }
                None => self.marks.push((number, marks)),
            }
        }
    }

    fn finish(self, program: &Program<'_>) -> FunctionVerdict {
        let mut verdict = self.verdict;
        if let Some(reached) = self.reached {
            let range = program.functions[self.function].range.clone();
            let body = crate::proof::body::Body::new(program.file, range);
            if let Some(mut body) = body {
                body.reached = reached;
                if let Some(at) = body.unreached(program.file) {
                    verdict.doubt(Doubt::Unreached, at);
                }
            }
        }
        let marks = self.marks.iter().flat_map(|(_, marks)| marks);
        verdict.rows = marks.clone().count() as u32;
        verdict.rows_proven = marks.filter(|&&m| m == 0).count() as u32;
        verdict
    }
}
