//! Compares many unwinders on many stacks: the matrix of verdicts, and the first divergences by
//! cause.

use crate::check::Class;
use crate::engine::Outcome;
use crate::kernel;
use crate::tally::Tally;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::reason::{Code, Reason};
use unwind_sim_unwind::row::RowSource;
use unwind_sim_unwind::verdict::Verdict;

/// How divergences are grouped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GroupBy {
    /// By reason code.
    #[default]
    Cause,
    /// By reason code and the function whose row is to blame.
    Function,
    /// By reason code and address.
    Instruction,
}

impl GroupBy {
    /// All of them.
    pub const ALL: [GroupBy; 3] = [GroupBy::Cause, GroupBy::Function, GroupBy::Instruction];

    /// Parses `cause`, `function` or `insn`.
    pub fn from_name(name: &str) -> Option<GroupBy> {
        match name {
            "cause" => Some(GroupBy::Cause),
            "function" => Some(GroupBy::Function),
            "insn" => Some(GroupBy::Instruction),
            _ => None,
        }
    }

    /// The name.
    pub const fn as_str(self) -> &'static str {
        match self {
            GroupBy::Cause => "cause",
            GroupBy::Function => "function",
            GroupBy::Instruction => "insn",
        }
    }
}

/// What the divergences of a group have in common.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct GroupKey {
    /// The column.
    pub column: usize,
    /// The class of the cause.
    pub class: Class,
    /// The verdict's letter.
    pub letter: char,
    /// The cause.
    pub code: Code,
    /// The place, if grouped by place.
    pub place: Option<String>,
}

/// A group of divergences.
#[derive(Clone, Debug)]
pub struct Group {
    /// The number of samples.
    pub count: u64,
    /// The first sample.
    pub sample: u64,
    /// The verdict on the first sample.
    pub verdict: Verdict,
    /// The true frame to blame in the first sample.
    pub frame: usize,
    /// The place of that frame.
    pub location: Location,
    /// The row to blame, if one was found.
    pub row: Option<RowSource>,
    /// What the row gave and what is true, as text.
    pub values: Option<String>,
}

/// How the chains that a kernel's own unwinder gave compare with those of a column, and with the truth.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KernelSaid {
    /// The number of chains that the kernel gave.
    pub chains: u64,
    /// Of these, the ones that the column has, too.
    pub same: u64,
    /// The ones whose true chain is complete.
    pub known: u64,
    /// Of these, the ones that are the true chain.
    pub right: u64,
}

impl KernelSaid {
    fn add(&mut self, view: &View<'_>, outcome: &Outcome) {
        let mut recorded = view.sample.recorded.iter();
        let Some(said) = recorded.find(|r| r.source == kernel::RECORDED) else {
            return;
        };
        // The kernel may have needed no more of the walk.
        let most = match kernel::is_stopped(view) {
            true => said.ips.len(),
            false => usize::MAX,
        };
        let frames = outcome.chain.frames.iter().take(most);
        let found = frames.map(|frame| frame.pc.value());
        self.chains += 1;
        self.same += u64::from(found.eq(said.ips.iter().copied()));
        let truth = &view.sample.truth;
        let frames = truth.frames().iter().skip(outcome.from).take(most);
        let is_right = frames.map(|frame| frame.pc).eq(said.ips.iter().copied());
        self.known += u64::from(truth.is_complete());
        self.right += u64::from(truth.is_complete() && is_right);
    }

    fn merge(&mut self, other: KernelSaid) {
        self.chains += other.chains;
        self.same += other.same;
        self.known += other.known;
        self.right += other.right;
    }
}

/// The result of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// The number of samples.
    pub samples: u64,
    /// The number of samples whose truth is complete, known in part, or unknown.
    pub truths: [u64; 3],
    /// Verdicts, by column.
    pub tallies: Vec<Tally>,
    /// What the kernel's own unwinder gave, by column.
    pub said: Vec<KernelSaid>,
    /// First divergences.
    pub groups: BTreeMap<GroupKey, Group>,
}

impl Comparison {
    /// An empty comparison with this many columns.
    pub fn new(columns: usize) -> Self {
        Comparison {
            tallies: vec![Tally::default(); columns],
            said: vec![KernelSaid::default(); columns],
            ..Self::default()
        }
    }

    /// Counts a sample, whatever its outcomes.
    pub fn add_sample(&mut self, view: &View<'_>) {
        self.samples += 1;
        let truth = &view.sample.truth;
        let kind = match (truth.is_complete(), truth.frames().is_empty()) {
            (true, _) => 0,
            (false, false) => 1,
            (false, true) => 2,
        };
        self.truths[kind] += 1;
    }

    /// Counts an outcome of `column` on `view`.
    pub fn add(&mut self, column: usize, view: &View<'_>, outcome: &Outcome, by: GroupBy) {
        self.tallies[column].add(outcome);
        self.said[column].add(view, outcome);
        let unsupported = outcome.verdict == Verdict::Unsupported;

        // A right chain has a diagnosis if a row is wrong whose value no frame needed.
        if !outcome.verdict.is_wrong() && !unsupported && outcome.diagnosis.is_none() {
            return;
        }

        // Without a diagnosis the sample's own place stands for it.
        let (code, frame, pc) = match &outcome.diagnosis {
            Some(d) => (d.code, d.frame, d.pc),
            None => {
                let pc = CodeAddress::Instruction(view.live().rip());
                (outcome.ended(), 0, pc)
            }
        };

        // A look-up of names takes longer than to count, so it is made only for what is shown.
        let location = || Location::of(view.space, pc);
        let place = match by {
            GroupBy::Cause => None,
            GroupBy::Function => Some(place_name(&location())),
            GroupBy::Instruction => Some(location().exact()),
        };

        let key = GroupKey {
            column,
            class: class_of(outcome),
            letter: outcome.verdict.letter(),
            code,
            place,
        };

        if let Some(group) = self.groups.get_mut(&key) {
            group.count += 1;
            return;
        }

        // The first sample stands for its group.
        let contradiction = outcome
            .diagnosis
            .as_ref()
            .and_then(|d| d.contradiction.as_ref());
        let group = Group {
            count: 1,
            sample: view.number,
            verdict: outcome.verdict,
            frame,
            location: location(),
            row: contradiction.and_then(|c| c.row.as_ref()).map(|r| r.source),
            values: contradiction.map(|c| c.to_string()),
        };

        self.groups.insert(key, group);
    }

    /// Adds the comparison of later samples by the same columns.
    pub fn merge(&mut self, later: Comparison) {
        self.samples += later.samples;
        for (count, more) in self.truths.iter_mut().zip(later.truths) {
            *count += more;
        }
        for (tally, more) in self.tallies.iter_mut().zip(&later.tallies) {
            tally.merge(more);
        }
        for (said, more) in self.said.iter_mut().zip(later.said) {
            said.merge(more);
        }
        for (key, group) in later.groups {
            match self.groups.entry(key) {
                // The first sample is that of the earlier one.
                Entry::Occupied(mut known) => known.get_mut().count += group.count,
                Entry::Vacant(place) => {
                    place.insert(group);
                }
            }
        }
    }

    /// The groups of a column, by class, with the largest first.
    pub fn column_groups(&self, column: usize) -> Vec<(&GroupKey, &Group)> {
        let mut groups: Vec<_> = self
            .groups
            .iter()
            .filter(|(key, _)| key.column == column)
            .collect();
        groups.sort_by_key(|(key, group)| {
            (key.class, std::cmp::Reverse(group.count), (*key).clone())
        });
        groups
    }

    /// Whether any chain was judged. One that agrees with the truth as far as that is known is not.
    pub fn judged(&self) -> bool {
        self.tallies.iter().any(|tally| tally.judged() > 0)
    }
}

/// The class of what is to blame. If no row is known to be to blame, a walk that ended where a
/// derived table cannot represent the row is a loss.
pub(crate) fn class_of(outcome: &Outcome) -> Class {
    let blamed = outcome.diagnosis.as_ref();
    let blamed = blamed.and_then(|d| d.contradiction.as_ref());
    let not_held = matches!(outcome.chain.end.reason, Reason::NotHeld { .. });
    let truncated = matches!(outcome.verdict, Verdict::Truncated { .. });
    match blamed {
        Some(contradiction) => contradiction.class(),
        None if not_held && truncated => Class::Loss,
        None => Class::Wrong,
    }
}

fn place_name(location: &Location) -> String {
    match (&location.function, &location.image) {
        (Some(function), Some(image)) => format!("{function} ({image})"),
        _ => location.exact(),
    }
}

#[cfg(test)]
mod tests;
