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
mod equal;
mod ground;
mod machine;
mod random;
#[cfg(test)]
mod tests;
mod unwritten;

pub use defect::Kind;
pub use equal::Argument;

use crate::file::File;
use crate::proof::claims::Choice;
use code::{BYTES_MAX, Code};
use defect::Victim;
use equal::Pair;
use ground::{Answer, Ground};
use random::Random;

/// The maximum number of draws for one defect: not every row has a place for every kind.
const DRAWS_MAX: usize = 1000;
/// The maximum number of misses that are listed.
const MISSES_MAX: usize = 10_000;

/// How to test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Chooses the defects.
    pub seed: u64,
    /// The number of defects; all kinds are equally frequent where a file has places for them.
    pub defects: usize,
    /// The conventions and claims that the user chooses.
    pub choice: Choice,
}

/// A defect that was not caught.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Miss {
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
    /// All others.
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
    /// By kind.
    pub kinds: Vec<(Kind, Tally)>,
    /// Equivalent ones by argument.
    pub arguments: Vec<(Argument, u64)>,
    /// Those that were not caught.
    pub misses: Vec<Miss>,
    /// Those that were caught although an argument says that they are equivalent: the proof or the
    /// argument is wrong.
    pub conflicts: Vec<Miss>,
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

    /// Adds the score of another file.
    pub fn add(&mut self, other: Score) {
        for ((_, mine), (_, theirs)) in self.kinds.iter_mut().zip(other.kinds) {
            mine.add(theirs);
        }
        for ((_, mine), (_, theirs)) in self.arguments.iter_mut().zip(other.arguments) {
            *mine += theirs;
        }
        let left = MISSES_MAX.saturating_sub(self.misses.len());
        self.misses.extend(other.misses.into_iter().take(left));
        let left = MISSES_MAX.saturating_sub(self.conflicts.len());
        self.conflicts
            .extend(other.conflicts.into_iter().take(left));
    }

    fn count(&mut self, kind: Kind, outcome: Outcome) {
        let Some((_, tally)) = self.kinds.iter_mut().find(|k| k.0 == kind) else {
            return;
        };
        match outcome {
            Outcome::Caught => tally.caught += 1,
            Outcome::Conflict(conflict) => {
                tally.conflicts += 1;
                if self.conflicts.len() < MISSES_MAX {
                    self.conflicts.push(conflict);
                }
            }
            Outcome::Equivalent(argument) => {
                tally.equivalent += 1;
                let mut arguments = self.arguments.iter_mut();
                if let Some((_, count)) = arguments.find(|a| a.0 == argument) {
                    *count += 1;
                }
            }
            Outcome::Missed(miss) => {
                tally.missed += 1;
                if self.misses.len() < MISSES_MAX {
                    self.misses.push(miss);
                }
            }
        }
    }
}

enum Outcome {
    Caught,
    Conflict(Miss),
    Equivalent(Argument),
    Missed(Miss),
}

/// Puts defects into the rows of `file`, one after the other. `None` if it has no `.eh_frame` or
/// `.debug_frame` with a proven function.
pub fn run(file: &File, options: &Options) -> Option<Score> {
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
        for _ in 0..DRAWS_MAX {
            let index = *random.one(&victims)?;
            let other = *random.one(&victims)?;
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
) -> Option<Outcome> {
    let unit = ground.program.functions.get(index)?.clone();
    let rows = ground.rows(index);
    let other_start = ground.program.functions.get(other)?.range.start;
    let others = ground.rows(other);
    let code = Code::read(&ground.program, &unit.range, unit.lsda.is_some());

    let victim = Victim {
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

    let pair = Pair {
        code: &code,
        range: unit.range.clone(),
        right: &rows,
        changed: &defect.rows,
        changed_end: defect.end,
        targets,
    };

    let answer = ground.ask(index, &pair);
    // Looked for in any case: an argument for a row that was contradicted shows that one of both is
    // wrong.
    let argument = pair.argument(random.number());

    let rule = |rows, end| equal::rule_at(rows, end, defect.row).map(ToString::to_string);
    let show = |rule: Option<String>| rule.unwrap_or_else(|| "no row".to_owned());
    let before = show(rule(&rows, unit.range.end));
    let miss = |answer: String| Miss {
        kind,
        function: unit.range.start,
        row: defect.row,
        change: format!("{before} became {}", show(rule(&defect.rows, defect.end))),
        answer,
    };

    Some(match (answer, argument) {
        (Answer::Caught(_), None) => Outcome::Caught,
        (Answer::Caught(at), Some(argument)) => {
            let argument = argument.as_str();
            Outcome::Conflict(miss(format!("contradicted at {at:#x}, but {argument}")))
        }
        (_, Some(argument)) => Outcome::Equivalent(argument),
        (Answer::Elsewhere(at), None) => {
            Outcome::Missed(miss(format!("contradicted elsewhere, at {at:#x}")))
        }
        (Answer::Unproven(doubt, at), None) => {
            Outcome::Missed(miss(format!("unproven ({doubt} at {at:#x})")))
        }
        (Answer::Proven, None) => Outcome::Missed(miss("proven".to_owned())),
    })
}
