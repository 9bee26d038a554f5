//! Compares a generated table with the table that the file has, address by address.
//!
//! Equal means: both have no row, or the rows say the same of what the format has
//! ([`projected`]). Equal in meaning: they say it in another form, and in what is known at the
//! instruction the file's row gives the right CFA, return address and registers.

use super::functions::NOT_EXECUTED;
use super::walk::Walker;
use super::{Gap, Generated, Options, generate_with};
use crate::convert::Target;
use crate::convert::expressible::{expressible, projected};
use crate::convert::source::says_nothing;
use crate::file::File;
use crate::hints::HintError;
use crate::proof::claim::{self, Outcome};
use crate::proof::claims::Claims;
use crate::table::{Row, Table};
use std::collections::{BTreeMap, HashMap};
use unwind_sim_unwind::convention::Convention;

/// The maximum number of ranges listed for each class.
pub const LISTED_MAX: usize = 64;

/// How the tables compare at an address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// The same, or none in both.
    Equal,
    /// The same in another form.
    EqualInMeaning,
    /// The file's row is not what the code has done.
    Contradicted,
    /// They differ, and it cannot be told which is right.
    Different,
    /// Only the file has a row.
    OnlyOld,
    /// Only the generated table has a row.
    OnlyNew,
    /// Only the file has a row, in assembly whose rows come from unwind hints that the file has no
    /// more.
    NeedsHint,
}

impl Class {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Class::Equal => "equal",
            Class::EqualInMeaning => "equal-in-meaning",
            Class::Contradicted => "contradicted",
            Class::Different => "different",
            Class::OnlyOld => "not-generated",
            Class::OnlyNew => "only-generated",
            Class::NeedsHint => "needs-hint",
        }
    }
}

/// How many addresses are of each class.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Comparison {
    /// Addresses of each class.
    pub addresses: BTreeMap<Class, u64>,
    /// The first ranges of each class but the equal ones: start and length.
    pub listed: Vec<(Class, u64, u64)>,
}

/// Generates the table of `file` and compares it with `old`, one of the file's own, which has format
/// `target`.
///
/// # Errors
/// If the file has unwind hints that cannot be read.
pub fn compare(
    file: &File,
    options: Options,
    old: &Table,
    target: Target,
) -> Result<(Generated, Comparison), HintError> {
    // What old rows mean is known only while the states of their function are there.
    let mut meanings: HashMap<u64, bool> = HashMap::new();
    let new = generate_with(
        file,
        options,
        Some(&mut |walker: &mut Walker<'_>| judge_function(walker, old, target, &mut meanings)),
    )?;

    let mut out = Comparison::default();

    // By address: rows may begin and end at different places in both tables.
    for code in file.code() {
        if NOT_EXECUTED.contains(&code.name.as_str()) {
            continue;
        }
        let mut before = None;
        for address in code.range.clone() {
            let mut class = class(&new, old, target, address, &meanings);

            // Padding has no state; where both rows go on, so does what they mean.
            let rows = (
                new.rule_at(address),
                old.row_at(address).map(|row| row.rule),
            );
            if class == Class::Different
                && let Some((known, meaning)) = before
                && known == rows
            {
                class = meaning;
            }

            before = Some((rows, class));
            out.add(class, address);
        }
    }

    Ok((new, out))
}

fn row_at(old: &Table, address: u64) -> Option<Row<'_>> {
    old.row_at(address).filter(|row| !says_nothing(row.rule))
}

/// Judges the old rows of the function that was followed last, where they differ from the new ones:
/// whether the code contradicts them.
fn judge_function(
    walker: &mut Walker<'_>,
    old: &Table,
    target: Target,
    meanings: &mut HashMap<u64, bool>,
) {
    for function in walker.functions(false) {
        for (range, rule) in &function.rows {
            let mut wanted = projected(rule, target);
            // No table stores this, so that it is no difference.
            wanted.by_frame_pointer = false;
            for address in range.clone() {
                // Only addresses that were followed have a state, by which a row can be judged.
                let Some(known) = walker.known(address) else {
                    continue;
                };
                let Some(row) = row_at(old, address) else {
                    continue;
                };
                if projected(row.rule, target) == wanted {
                    continue;
                }

                // All claims must be right for a row to be; one that is wrong is enough against it.
                let (mut proven, mut wrong) = (true, false);
                let claims = Claims::of(Convention::SystemV);
                claim::judge(
                    (old, &claims),
                    &row,
                    address,
                    &known.state,
                    walker.anchors(),
                    |_, outcome| match outcome {
                        Outcome::Proven { .. } => {}
                        Outcome::Contradicted { .. } => (proven, wrong) = (false, true),
                        Outcome::Unproven
                        | Outcome::Guessed
                        | Outcome::ByCallee
                        | Outcome::Overwritten => proven = false,
                    },
                );

                // Every byte of the instruction has the same rows.
                if proven || wrong {
                    let end = address + u64::from(known.len);
                    meanings.extend((address..end).map(|a| (a, proven)));
                }
            }
        }
    }
}

fn class(
    new: &Generated,
    old: &Table,
    target: Target,
    address: u64,
    meanings: &HashMap<u64, bool>,
) -> Class {
    // What the format cannot hold is as good as no row.
    let found = new.rule_at(address).filter(|r| expressible(r, target));
    match (row_at(old, address), found) {
        (None, None) => Class::Equal,
        (Some(_), None) => {
            // Without the hint that the row came from, the code does not tell it.
            let function = new.function_at(address);
            let gaps = function.map_or(&[][..], |f| &f.gaps);
            if gaps.iter().any(|gap| gap.0 == Gap::Hint) {
                Class::NeedsHint
            } else {
                Class::OnlyOld
            }
        }
        (None, Some(_)) => Class::OnlyNew,
        (Some(row), Some(rule)) if projected(row.rule, target) == projected(rule, target) => {
            Class::Equal
        }

        // Where both have a row and they differ, the code decides, if it can.
        _ => match meanings.get(&address) {
            Some(true) => Class::EqualInMeaning,
            Some(false) => Class::Contradicted,
            None => Class::Different,
        },
    }
}

impl Comparison {
    fn add(&mut self, class: Class, address: u64) {
        *self.addresses.entry(class).or_default() += 1;
        if matches!(class, Class::Equal | Class::EqualInMeaning) {
            return;
        }
        if let Some(last) = self.listed.last_mut()
            && last.0 == class
            && last.1.checked_add(last.2) == Some(address)
        {
            last.2 += 1;
            return;
        }
        if self.listed.iter().filter(|l| l.0 == class).count() < LISTED_MAX {
            self.listed.push((class, address, 1));
        }
    }

    /// The number of addresses compared.
    pub fn total(&self) -> u64 {
        self.addresses.values().sum()
    }

    /// The share of the addresses at which both say the same, of those whose rows the code shows.
    pub fn share(&self) -> f64 {
        let same = self.count(Class::Equal) + self.count(Class::EqualInMeaning);
        let shown = self.total() - self.count(Class::NeedsHint);
        same as f64 / shown.max(1) as f64
    }

    /// The addresses of one class.
    pub fn count(&self, class: Class) -> u64 {
        self.addresses.get(&class).copied().unwrap_or(0)
    }
}
