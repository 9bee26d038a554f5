//! A table from the code alone: the abstract interpreter of [`crate::proof`], writing.
//!
//! - [`functions`]: the functions of a file;
//! - [`kernel`]: what kernel modules say of their code beside the code;
//! - [`walk`]: follows a function along all its ways;
//! - [`rows`]: the row for what is known at an instruction;
//! - [`compare`]: the result held against a table that the file has;
//! - [`mod@write`]: the result as the sections of a format;
//! - [`object`]: sections added to a relocatable object.
//!
//! An address gets no row where ways that lead there disagree, where the frame is not known, and where
//! no way leads; the first two are listed with the function. Unwind hints of the kernel
//! (`.discard.unwind_hints`) are not read: linking a module drops them.

pub mod compare;
pub mod functions;
pub mod kernel;
pub mod object;
pub mod rows;
pub mod walk;
pub mod write;

use crate::file::File;
use functions::Unit;
use kernel::Edges;
use std::collections::BTreeSet;
use std::ops::Range;
use unwind_sim_unwind::rule::Rule;
use walk::{Followed, Walker};

/// The maximum number of times that all functions are followed until it is known which return.
const ROUNDS_MAX: usize = 8;

/// Where the boundaries of functions come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Boundaries {
    /// Symbols with a size.
    Symbols,
    /// The first table that the file has; symbols if it has none.
    Table,
}

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

/// A generated table.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Generated {
    /// The functions, by address.
    pub functions: Vec<Function>,
}

/// The rows of all functions of `file`.
pub fn generate(file: &File, boundaries: Boundaries) -> Generated {
    generate_with(file, boundaries, |_, _| {})
}

/// Like [`generate`]; `each` gets what following each function gave, with all states.
pub fn generate_with(
    file: &File,
    boundaries: Boundaries,
    mut each: impl FnMut(&Walker<'_>, &Followed),
) -> Generated {
    let units = functions::find(file, boundaries);
    let edges = Edges::read(file);
    let never = never_return(file, &units, &edges);
    let mut walker = Walker::new(file, &units, &edges, &never);
    let mut out = Generated::default();
    for index in 0..units.len() {
        let Some(followed) = walker.follow(index) else {
            continue;
        };
        each(&walker, &followed);
        for function in walker.functions() {
            out.add(function);
        }
    }
    out.functions.sort_by_key(|f| f.range.start);
    out
}

/// The starts (svma) of the functions that never return, found by following all of them until nothing
/// changes.
fn never_return(file: &File, units: &[Unit], edges: &Edges) -> BTreeSet<u64> {
    let mut never = BTreeSet::new();
    let mut callees: Vec<Vec<u64>> = Vec::new();
    let mut fresh: BTreeSet<u64> = BTreeSet::new();
    for round in 0..ROUNDS_MAX {
        let mut found = BTreeSet::new();
        let mut walker = Walker::new(file, units, edges, &never);
        for (index, unit) in units.iter().enumerate() {
            let known = callees.get(index);
            let concerned = known.is_none_or(|c| c.iter().any(|callee| fresh.contains(callee)));
            let followed = concerned.then(|| walker.follow(index)).flatten();
            if round == 0 {
                callees.push(followed.as_ref().map_or(Vec::new(), |f| f.callees.clone()));
            }
            if followed.is_some_and(|f| !f.returns) && !never.contains(&unit.range.start) {
                found.insert(unit.range.start);
            }
        }
        if found.is_empty() {
            break;
        }
        never.extend(&found);
        fresh = found;
    }
    never
}

impl Generated {
    /// Adds a function, or the rows of another way into one that is there: parts of functions can be
    /// entered from several.
    fn add(&mut self, new: Function) {
        let known = self.functions.iter_mut().rev();
        let same = known.take(4096).find(|f| f.range == new.range);
        match same {
            Some(old) => old.merge(new),
            None => self.functions.push(new),
        }
    }

    /// The function that contains `address` (svma).
    pub fn function_at(&self, address: u64) -> Option<&Function> {
        let after = self.functions.partition_point(|f| f.range.start <= address);
        let function = self.functions.get(after.checked_sub(1)?)?;
        function.range.contains(&address).then_some(function)
    }

    /// The rule for `address` (svma).
    pub fn rule_at(&self, address: u64) -> Option<&Rule> {
        self.function_at(address)?.rule_at(address)
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.functions.iter().map(|f| f.rows.len()).sum()
    }
}

impl Function {
    /// The rule for `address` (svma).
    pub fn rule_at(&self, address: u64) -> Option<&Rule> {
        let after = self.rows.partition_point(|row| row.0.start <= address);
        let (range, rule) = self.rows.get(after.checked_sub(1)?)?;
        range.contains(&address).then_some(rule)
    }

    /// Adds a row behind the others; one that says the same as its neighbour makes that longer.
    fn push(&mut self, range: Range<u64>, rule: Rule) {
        match self.rows.last_mut() {
            Some((last, same)) if last.end == range.start && *same == rule => last.end = range.end,
            _ if range.is_empty() => {}
            _ => self.rows.push((range, rule)),
        }
    }

    /// Joins the rows that other ways into the function gave. Where both have one and they differ,
    /// neither stays.
    fn merge(&mut self, other: Function) {
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
