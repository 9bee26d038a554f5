//! `tables check --self-test`: whether the proof finds wrong rows.
//!
//! Defects are put at random into rows of `.eh_frame`, or of `.debug_frame` where that is what a file
//! has, that are proven, one at a time, and the
//! function is proven again. A defect is *caught* only if the wrong row is contradicted where it is
//! wrong; for a range that ends too early, where code of the function is reached without a row.
//! It is *equivalent* if an [`Argument`] that does not use the proof shows that the changed row is
//! right as well. Everything else is a *miss*, also what is left unproven.
//!
//! Same file, same seed, same defects.

mod code;
mod defect;
mod draw;
mod equal;
mod ground;
mod machine;
#[cfg(test)]
mod tests;
mod unwritten;

pub use defect::Kind;
pub use equal::Argument;

use crate::file::File;
use crate::proof::claims::UserChoice;
use crate::random::Random;
use code::{BYTES_MAX, FunctionCode};
use defect::MutationTarget;
use draw::one;
use equal::MutatedFunction;
use ground::{Ground, ProofAnswer};

/// The maximum number of draws for one defect: not every row has a place for every kind.
const DRAWS_MAX: usize = 1000;
/// The maximum number of misses that are listed.
const MISSES_MAX: usize = 10_000;

/// What defects to make, and by which rules the proof judges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Chooses the defects.
    pub seed: u64,
    /// The number of defects; all kinds are equally frequent where a file has places for them.
    pub defects: usize,
    /// The conventions and claims that the user chooses.
    pub choice: UserChoice,
}

/// A defect that was not caught.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UncaughtDefect {
    /// The kind of defect.
    pub kind: Kind,
    /// The start of the function (svma).
    pub function: u64,
    /// The start of the row (svma), or the end of a shortened range.
    pub row: u64,
    /// What the row said and says now.
    pub change: String,
    /// What the proof said.
    pub answer: String,
}

/// Numbers of defects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Contradicted where they are.
    pub caught: u64,
    /// No defects at all, see [`Argument`].
    pub equivalent: u64,
    /// Contradicted, although an argument says that they are no defects. Not among the others.
    pub conflicts: u64,
    /// Not contradicted where they are, and not shown to be equivalent.
    pub missed: u64,
}

impl Tally {
    /// All of them.
    pub fn all(self) -> u64 {
        self.caught + self.equivalent + self.conflicts + self.missed
    }

    /// The share of the defects that was caught, percent; `None` if there were none. What is
    /// equivalent is no defect: it was neither caught nor missed.
    pub fn score(self) -> Option<f64> {
        let defects = self.caught + self.missed;
        (defects > 0).then(|| 100.0 * self.caught as f64 / defects as f64)
    }

    /// Adds `other`.
    pub fn add(&mut self, other: Tally) {
        self.caught += other.caught;
        self.equivalent += other.equivalent;
        self.conflicts += other.conflicts;
        self.missed += other.missed;
    }
}

/// What became of all defects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Score {
    /// The numbers by kind of defect.
    pub kinds: Vec<(Kind, Tally)>,
    /// Equivalent ones by argument.
    pub arguments: Vec<(Argument, u64)>,
    /// Those that were not caught.
    pub misses: Vec<UncaughtDefect>,
    /// Those that were caught although an argument says that they are equivalent: the proof or the
    /// argument is wrong.
    pub conflicts: Vec<UncaughtDefect>,
}

impl Default for Score {
    fn default() -> Self {
        Score {
            kinds: Kind::ALL.map(|kind| (kind, Tally::default())).to_vec(),
            arguments: Argument::ALL.map(|argument| (argument, 0)).to_vec(),
            misses: Vec::new(),
            conflicts: Vec::new(),
        }
    }
}

impl Score {
    /// All kinds together.
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.kinds.iter().for_each(|(_, tally)| total.add(*tally));
        total
    }

    fn count(&mut self, kind: Kind, outcome: DefectOutcome) {
        let Some((_, tally)) = self.kinds.iter_mut().find(|k| k.0 == kind) else {
            return;
        };
        match outcome {
            DefectOutcome::Caught => tally.caught += 1,
            DefectOutcome::Conflict(conflict) => {
                tally.conflicts += 1;

                // The numbers are of all, but only some are kept as examples.
                if self.conflicts.len() < MISSES_MAX {
                    self.conflicts.push(conflict);
                }
            }
            DefectOutcome::Equivalent(argument) => {
                tally.equivalent += 1;
                let mut arguments = self.arguments.iter_mut();
                if let Some((_, count)) = arguments.find(|a| a.0 == argument) {
                    *count += 1;
                }
            }
            DefectOutcome::Missed(miss) => {
                tally.missed += 1;
                if self.misses.len() < MISSES_MAX {
                    self.misses.push(miss);
                }
            }
        }
    }
}

enum DefectOutcome {
    Caught,
    Conflict(UncaughtDefect),
    Equivalent(Argument),
    Missed(UncaughtDefect),
}

/// Puts defects into the rows of `file`, one after the other. `None` if it has no `.eh_frame` or
/// `.debug_frame` with a proven function.
pub fn run(file: &File, options: &Options) -> Option<Score> {
    // The file is proven once; its functions are proven again with one defect each.
    let mut ground = Ground::new(file, options.choice)?;
    let targets = code::targets(&ground.program);
    let victims: Vec<usize> = ground
        .proven
        .iter()
        .copied()
        .filter(|&index| {
            let range = &ground.program.functions[index].range;
            range.end - range.start <= BYTES_MAX && ground.is_whole(index)
        })
        .collect();

    let mut random = Random::new(options.seed);
    let mut score = Score::default();
    // By turns, so that there are as many of each kind.
    for kind in Kind::ALL.into_iter().cycle().take(options.defects) {
        // A row drawn may have no place for this kind, so it is drawn again, but not for ever.
        for _ in 0..DRAWS_MAX {
            let index = *one(&mut random, &victims)?;
            let other = *one(&mut random, &victims)?;
            if let Some(outcome) = try_one(&mut ground, &targets, (index, other), kind, &mut random)
            {
                score.count(kind, outcome);
                break;
            }
        }
    }
    Some(score)
}

/// Puts one defect into function `index`; `None` if the row drawn has no place for it.
fn try_one(
    ground: &mut Ground<'_>,
    targets: &code::Targets,
    (index, other): (usize, usize),
    kind: Kind,
    random: &mut Random,
) -> Option<DefectOutcome> {
    let unit = ground.program.functions.get(index)?.clone();

    // Rows are copied, since the defect is put into a copy.
    let rows = ground.rows(index);
    let other_start = ground.program.functions.get(other)?.range.start;
    let others = ground.rows(other);
    let code = FunctionCode::read(&ground.program, &unit.range, unit.lsda.is_some());

    let victim = MutationTarget {
        range: unit.range.clone(),
        rows: &rows,
        code: &code,
        other: (&others, other_start),
    };

    let defect = victim.defect(kind, random)?;
    // What a row does not claim cannot be wrong.
    if !victim.is_claimed(kind, &defect) {
        return None;
    }

    let pair = MutatedFunction {
        code: &code,
        range: unit.range.clone(),
        right: &rows,
        changed: &defect.rows,
        changed_end: defect.end,
        targets,
    };

    // The proof is asked first, and knows nothing of the argument.
    let answer = ground.ask(index, &pair);
    // Looked for in any case: an argument for a row that was contradicted shows that one of both is
    // wrong.
    let argument = pair.argument(random.bits());

    let rule = |rows, end| equal::rule_at(rows, end, defect.row).map(ToString::to_string);
    let show = |rule: Option<String>| rule.unwrap_or_else(|| "no row".to_owned());
    let before = show(rule(&rows, unit.range.end));
    let miss = |answer: String| UncaughtDefect {
        kind,
        function: unit.range.start,
        row: defect.row,
        change: format!("{before} became {}", show(rule(&defect.rows, defect.end))),
        answer,
    };

    Some(match (answer, argument) {
        (ProofAnswer::Caught(_), None) => DefectOutcome::Caught,
        (ProofAnswer::Caught(at), Some(argument)) => {
            let argument = argument.as_str();
            DefectOutcome::Conflict(miss(format!("contradicted at {at:#x}, but {argument}")))
        }
        (_, Some(argument)) => DefectOutcome::Equivalent(argument),
        (ProofAnswer::Elsewhere(at), None) => {
            DefectOutcome::Missed(miss(format!("contradicted elsewhere, at {at:#x}")))
        }
        (ProofAnswer::Unproven(doubt, at), None) => {
            DefectOutcome::Missed(miss(format!("unproven ({doubt} at {at:#x})")))
        }
        (ProofAnswer::Proven, None) => DefectOutcome::Missed(miss("proven".to_owned())),
    })
}
