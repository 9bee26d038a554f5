//! Tables as text, in the form of the field's own tools.
//!
//! - [`readelf`]: `.eh_frame` and `.debug_frame` as `readelf --debug-dump=frames-interp`;
//! - [`sframe`]: `.sframe` as `objdump --sframe`;
//! - [`orc`]: ORC as `objtool --dump=orc`.
//!
//! Rows as equations come from [`crate::table`]; they are shown by the room `view`.

pub mod orc;
mod output;
pub mod readelf;
pub mod sframe;

use std::ops::Range;

/// The maximum number of problems that are kept; the rest are counted.
pub const PROBLEMS_MAX: usize = 100;

/// Which functions are shown.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    ranges: Option<Vec<Range<u64>>>,
}

impl Filter {
    /// A filter that hides nothing.
    pub const ALL: Filter = Filter { ranges: None };

    /// The functions that have an address (svma) in one of these ranges.
    pub fn ranges(ranges: Vec<Range<u64>>) -> Filter {
        Filter {
            ranges: Some(ranges),
        }
    }

    /// Whether everything is shown.
    pub fn is_all(&self) -> bool {
        self.ranges.is_none()
    }

    /// Whether the function at these addresses (svma) is shown.
    pub fn shows(&self, function: &Range<u64>) -> bool {
        let overlaps = |r: &Range<u64>| r.start < function.end && function.start < r.end;
        match &self.ranges {
            None => true,
            Some(ranges) => ranges.iter().any(overlaps),
        }
    }
}

/// A part of a table that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{section}+{offset:#x}: {what}")]
pub struct Problem {
    /// The section's name.
    pub section: &'static str,
    /// Offset in the section, bytes.
    pub offset: u64,
    /// What is wrong.
    pub what: DumpError,
}

/// What is wrong with a part of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DumpError {
    /// A word of our own readers.
    #[error("{0}")]
    Reader(&'static str),
    /// A word of gimli.
    #[error("{0}")]
    Gimli(gimli::Error),
}

/// What was written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DumpSummary {
    /// Functions (FDEs; for ORC, 0).
    pub functions: u64,
    /// The number of rows written.
    pub rows: u64,
    /// The first [`PROBLEMS_MAX`] parts that could not be read.
    pub problems: Vec<Problem>,
    /// The number of all parts that could not be read.
    pub problem_count: u64,
}

impl DumpSummary {
    fn problem(&mut self, section: &'static str, offset: u64, what: DumpError) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(Problem {
                section,
                offset,
                what,
            });
        }
    }

    /// Adds what was written of another table.
    pub fn add(&mut self, other: DumpSummary) {
        self.functions += other.functions;
        self.rows += other.rows;
        self.problem_count += other.problem_count;
        let left = PROBLEMS_MAX.saturating_sub(self.problems.len());
        self.problems.extend(other.problems.into_iter().take(left));
    }
}
