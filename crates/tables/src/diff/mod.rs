//! Where two tables disagree: about the CFA, the return address, or a callee-saved register.
//!
//! [`diff`] compares two tables of one file, address by address; [`builds`] compares the tables of
//! two builds of a program, function by function. What counts as a contradiction is stated in
//! `compare.rs` and, in short, by [`Cause::description`]. What a format has no word for is counted
//! as a [`Loss`], not as a disagreement.

pub mod builds;
mod cause;
mod code;
mod compare;
mod format;
mod join;
mod normal;
mod segments;
#[cfg(test)]
mod tests;

pub use cause::{Cause, Causes, Gravity};
pub use format::Format;

use crate::file::File;
use crate::table::Table;
use std::collections::BTreeMap;
use std::ops::Range;
use unwind_sim_unwind::derived::Loss;
use unwind_sim_unwind::reason::Reason;
use unwind_sim_unwind::rule::Rule;

/// A table and its file.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The file.
    pub file: &'a File,
    /// One of its tables.
    pub table: &'a Table,
}

/// One of the two tables.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TableSide {
    /// The first.
    First,
    /// The second.
    Second,
}

/// What one of the tables says where they disagree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// No row, or a row without a CFA.
    Nothing,
    /// A row: its rule, and its offset in the section.
    Row {
        /// The rule in normal form.
        rule: Rule,
        /// Offset in the section, bytes.
        offset: u64,
    },
    /// The function is malformed.
    Malformed(Reason),
}

/// A maximal range of addresses of a function in which two tables disagree for the same causes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Its addresses (svma) in the first file.
    pub range: Range<u64>,
    /// The address (svma) of its start in the second file.
    pub other: u64,
    /// The function in the table that has it, in the first file's addresses.
    pub function: Range<u64>,
    /// Why they disagree.
    pub causes: Causes,
    /// What the tables say at the start of the range.
    pub claims: [Claim; 2],
    /// The number of pairs of rows that disagree.
    pub rows: u64,
}

impl Difference {
    /// How grave it is.
    pub fn gravity(&self) -> Gravity {
        self.causes.gravity().unwrap_or(Gravity::Form)
    }
}

/// What a format could not express.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LossTotals {
    /// Pairs of rows.
    pub rows: u64,
    /// Bytes of code.
    pub bytes: u64,
}

/// What a comparison found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Diff {
    /// Where they disagree, by address.
    pub differences: Vec<Difference>,
    /// What a format has no word for, and the table that lost it.
    pub losses: BTreeMap<(TableSide, Loss), LossTotals>,
    /// Pairs of rows that were compared.
    pub rows: u64,
    /// Bytes of code for which both tables have a row.
    pub bytes: u64,
}

impl Diff {
    /// Whether the tables contradict each other.
    pub fn contradicts(&self) -> bool {
        let mut all = self.differences.iter();
        all.any(|d| d.gravity() == Gravity::Contradiction)
    }
}

/// Compares two tables of the same file.
pub fn diff(first: Input<'_>, second: Input<'_>) -> Diff {
    let mut join = join::Join::new(first, second);
    join.window(0..u64::MAX, 0);
    join.finish()
}
