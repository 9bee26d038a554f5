//! The rows of one function, and why addresses in it have none.

use std::ops::Range;
use unwind_sim_unwind::rule::Rule;

/// Why addresses of a function have no row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Gap {
    /// Ways that lead there disagree about the frame.
    Disagree,
    /// It is not known where the frame is.
    Frame,
    /// Bytes that are not an instruction.
    Undecodable,
    /// An indirect jump within the function whose targets are not known.
    IndirectJump,
    /// The function is too large, or takes too many steps.
    Limit,
}

impl Gap {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Gap::Disagree => "disagree",
            Gap::Frame => "frame",
            Gap::Undecodable => "undecodable",
            Gap::IndirectJump => "indirect-jump",
            Gap::Limit => "limit",
        }
    }

    /// A short description for display.
    pub const fn description(self) -> &'static str {
        match self {
            Gap::Disagree => "ways that lead here disagree about the frame",
            Gap::Frame => "it is not known where the frame is",
            Gap::Undecodable => "not an instruction",
            Gap::IndirectJump => "an indirect jump whose targets are not known",
            Gap::Limit => "a limit of this program was reached",
        }
    }
}

/// The rows of one function.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Function {
    /// Its addresses (svma).
    pub range: Range<u64>,
    /// Its name; empty if it has none.
    pub name: String,
    /// The rows, by address, without overlaps; neighbours differ.
    pub rows: Vec<(Range<u64>, Rule)>,
    /// Why addresses have no row, each reason with the first address (svma).
    pub gaps: Vec<(Gap, u64)>,
}

impl Function {
    /// The rule for `address` (svma).
    pub fn rule_at(&self, address: u64) -> Option<&Rule> {
        let after = self.rows.partition_point(|row| row.0.start <= address);
        let (range, rule) = self.rows.get(after.checked_sub(1)?)?;
        range.contains(&address).then_some(rule)
    }

    /// Adds a row behind the others; one that says the same as its neighbour makes that longer.
    pub(super) fn push(&mut self, range: Range<u64>, rule: Rule) {
        match self.rows.last_mut() {
            Some((last, same)) if last.end == range.start && *same == rule => last.end = range.end,
            _ if range.is_empty() => {}
            _ => self.rows.push((range, rule)),
        }
    }

    /// Joins the rows that other ways into the function gave. Where both have one and they differ,
    /// neither stays.
    pub(super) fn merge(&mut self, other: Function) {
        let mut edges: Vec<u64> = Vec::new();
        for (range, _) in self.rows.iter().chain(&other.rows) {
            edges.extend([range.start, range.end]);
        }
        edges.sort_unstable();
        edges.dedup();
        let mut merged = Function::default();
        for (&start, &end) in edges.iter().zip(edges.iter().skip(1)) {
            match (self.rule_at(start), other.rule_at(start)) {
                (Some(a), Some(b)) if a != b => self.gaps.push((Gap::Disagree, start)),
                (Some(rule), _) | (_, Some(rule)) => merged.push(start..end, *rule),
                (None, None) => {}
            }
        }
        self.rows = merged.rows;
        for gap in other.gaps {
            if !self.gaps.iter().any(|known| known.0 == gap.0) {
                self.gaps.push(gap);
            }
        }
    }
}
