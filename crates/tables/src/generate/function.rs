//! The rows of one function, and why addresses in it have none.

use super::breach::Breach;
use crate::file::File;
use crate::proof::body::is_padding;
use iced_x86::{Decoder, DecoderOptions};
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
    /// Assembly that is not a function, without unwind hints.
    Hint,
}

/// All reasons, in the order of reports.
pub const GAPS: [Gap; 6] = [
    Gap::Disagree,
    Gap::Frame,
    Gap::Undecodable,
    Gap::IndirectJump,
    Gap::Limit,
    Gap::Hint,
];

impl Gap {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Gap::Disagree => "disagree",
            Gap::Frame => "frame",
            Gap::Undecodable => "undecodable",
            Gap::IndirectJump => "indirect-jump",
            Gap::Limit => "limit",
            Gap::Hint => "hint",
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
            Gap::Hint => "assembly whose rows come from unwind hints, which are not in the file",
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
    /// Rules of the kernel that it breaks, and where (svma).
    pub breaches: Vec<(u64, Breach)>,
    /// Instructions that ways lead to, but that have no row (svma), by address.
    pub(super) silent: Vec<Range<u64>>,
}

impl Function {
    /// The rule for `address` (svma).
    pub fn rule_at(&self, address: u64) -> Option<&Rule> {
        let after = self.rows.partition_point(|row| row.0.start <= address);
        let (range, rule) = self.rows.get(after.checked_sub(1)?)?;
        range.contains(&address).then_some(rule)
    }

    /// Makes the last row, or the last instructions without one, end at `end` (svma). Returns whether
    /// there are any.
    pub(super) fn extend(&mut self, end: u64) -> bool {
        let row = self.rows.last_mut().map(|row| &mut row.0);
        let silent = self.silent.last_mut();
        let last = row.into_iter().chain(silent).max_by_key(|range| range.end);
        if let Some(last) = last {
            last.end = end;
            return true;
        }
        false
    }

    /// Ends it at `end` (svma), if it is longer.
    pub(super) fn clip(&mut self, end: u64) {
        if self.range.end <= end {
            return;
        }
        self.range.end = end;
        for (range, _) in &mut self.rows {
            range.end = range.end.min(end);
        }
        for range in &mut self.silent {
            range.end = range.end.min(end);
        }
        self.rows.retain(|(range, _)| !range.is_empty());
        self.silent.retain(|range| !range.is_empty());
        self.gaps.retain(|gap| gap.1 < end);
        self.breaches.retain(|breach| breach.0 < end);
    }

    /// Ends it behind its last instruction that ways lead to.
    pub(super) fn close(&mut self) {
        let rows = self.rows.iter().map(|row| row.0.end);
        let silent = self.silent.iter().map(|range| range.end);
        self.range.end = rows.chain(silent).max().unwrap_or(self.range.start);
    }

    /// Adds a row behind the others; one that says the same as its neighbour makes that longer.
    pub(super) fn push(&mut self, range: Range<u64>, rule: Rule) {
        match self.rows.last_mut() {
            Some((last, same)) if last.end == range.start && *same == rule => last.end = range.end,
            _ if range.is_empty() => {}
            _ => self.rows.push((range, rule)),
        }
    }

    /// The first address (svma) of an instruction that no way leads to, and that is not padding.
    pub(super) fn unreached(&self, file: &File) -> Option<u64> {
        if self.rows.is_empty() && self.silent.is_empty() {
            return None;
        }
        let rows = self.rows.iter().map(|row| row.0.clone());
        let mut reached: Vec<Range<u64>> = rows.chain(self.silent.iter().cloned()).collect();
        reached.sort_by_key(|range| (range.start, range.end));
        reached.push(self.range.end..self.range.end);
        let mut end = self.range.start;
        for range in reached {
            let bytes = file.bytes(end);
            let hole = range.start.saturating_sub(end);
            let hole = usize::try_from(hole)
                .ok()
                .and_then(|hole| bytes.get(..hole));
            let decoder = Decoder::with_ip(64, hole.unwrap_or(&[]), end, DecoderOptions::NONE);
            let found = decoder.into_iter().find(|insn| !is_padding(insn));
            if let Some(insn) = found {
                return Some(insn.ip());
            }
            end = end.max(range.end);
        }
        None
    }

    /// Gives padding the row before it. `skip` finds the first address from another on that is not
    /// padding; `None` if there is only padding to the end.
    pub(super) fn pad(&mut self, mut skip: impl FnMut(u64) -> Option<u64>) {
        let rows = std::mem::take(&mut self.rows);
        let starts = rows.iter().skip(1).map(|row| row.0.start);
        let starts: Vec<u64> = starts.chain([self.range.end]).collect();
        for ((range, rule), next) in rows.into_iter().zip(starts) {
            let is_padding = range.end < next && skip(range.end).unwrap_or(next) >= next;
            let end = if is_padding { next } else { range.end };
            self.push(range.start..end, rule);
        }
    }

    /// Joins the rows that other ways into the function gave. Where both have one and they differ,
    /// neither stays.
    pub(super) fn merge(&mut self, other: Function) {
        // Between two neighbouring edges, neither of the two changes its row.
        let mut edges: Vec<u64> = Vec::new();
        for (range, _) in self.rows.iter().chain(&other.rows) {
            edges.extend([range.start, range.end]);
        }
        edges.sort_unstable();
        edges.dedup();

        let mut merged = Function::default();

        // So each piece has at most one row of each.
        for (&start, &end) in edges.iter().zip(edges.iter().skip(1)) {
            match (self.rule_at(start), other.rule_at(start)) {
                // Where both disagree, neither is right on all ways.
                (Some(a), Some(b)) if a != b => self.gaps.push((Gap::Disagree, start)),
                (Some(rule), _) | (_, Some(rule)) => merged.push(start..end, *rule),
                (None, None) => {}
            }
        }

        // What was found besides rows is joined as it is.
        self.rows = merged.rows;
        self.silent.extend(other.silent);
        self.breaches.extend(other.breaches);
        self.breaches
            .sort_by_key(|(at, breach)| (*at, breach.as_str()));
        self.breaches.dedup();

        // One place for each kind of gap is enough.
        for gap in other.gaps {
            if !self.gaps.iter().any(|known| known.0 == gap.0) {
                self.gaps.push(gap);
            }
        }
    }
}
