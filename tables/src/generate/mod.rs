//! A table from the code alone: the abstract interpreter of [`crate::proof`], writing.
//!
//! - [`function`]: the rows of one function;
//! - [`functions`]: the functions of a file;
//! - [`walk`]: follows a function along all its ways;
//! - [`rows`]: the row for what is known at an instruction;
//! - [`compare`]: compares the result with a table that the file has;
//! - [`mod@write`]: the result as the sections of a format;
//! - [`object`]: sections added to a relocatable object.
//!
//! An address gets no row where ways that lead there disagree, where the frame is not known, and where
//! no way leads; the first two are listed with the function. Unwind hints of the kernel
//! (`.discard.unwind_hints`) are not read: linking a module drops them.

pub mod compare;
pub mod function;
pub mod functions;
pub mod object;
pub mod rows;
pub mod walk;
pub mod write;

use crate::file::File;
pub use function::{Function, Gap};
pub use functions::Boundaries;

use crate::kernel::Edges;
use functions::Unit;
use std::collections::BTreeSet;
use unwind_sim_unwind::rule::Rule;
use walk::{Followed, Walker};

/// The maximum number of times that all functions are followed until it is known which return.
const ROUNDS_MAX: usize = 8;

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
