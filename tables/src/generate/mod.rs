//! A table from the code alone: the abstract interpreter of [`crate::proof`], writing.
//!
//! - [`function`]: the rows of one function;
//! - [`functions`]: the functions of a file;
//! - [`walk`]: follows a function along all its ways;
//! - [`rows`]: the row for what is known at an instruction;
//! - [`breach`]: what objtool warns about;
//! - [`compare`]: compares the result with a table that the file has;
//! - [`mod@write`]: the result as the sections of a format;
//! - [`object`]: sections added to a relocatable object.
//!
//! An address gets no row where ways that lead there disagree, where the frame is not known, and where
//! no way leads; the first two are listed with the function. So is assembly that is not a function
//! (a symbol without a type) where no unwind hint of the kernel says what its frame is.

pub mod breach;
pub mod compare;
pub mod function;
pub mod functions;
pub mod object;
pub mod rows;
pub mod walk;
pub mod write;

use crate::file::File;
pub use function::{Function, GAPS, Gap};
pub use functions::Boundaries;

use crate::convert::Target;
use crate::hints::{HintError, Hints};
use crate::kernel::Edges;
use crate::proof::program::Entry;
use breach::Breach;
use functions::Unit;
use hashbrown::HashMap;
use std::collections::BTreeSet;
use unwind_sim_unwind::orc::{Encoding, Layout};
use unwind_sim_unwind::rule::Rule;
use walk::Walker;

/// The maximum number of times that all functions are followed until it is known which return.
const ROUNDS_MAX: usize = 8;

/// What the names of the kernel's static calls begin with: a jump, and space to patch.
const STATIC_CALL: &str = "__SCT__";

/// What the names that [`unwind_sim_unwind::elf`] gives to stubs end with.
const PLT: &str = "@plt";

/// A generated table.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Generated {
    /// The functions, by address.
    pub functions: Vec<Function>,
}

/// What to generate from.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Where the boundaries of functions come from.
    pub boundaries: Boundaries,
    /// The ORC encoding of the kernel whose unwind hints a relocatable object has.
    pub encoding: Encoding,
    /// Whether padding within a function gets a row: objtool gives it none, compilers do.
    pub pads: bool,
}

impl Options {
    /// For a table of format `target`: the hints are those of the same kernel.
    pub fn new(boundaries: Boundaries, target: Target) -> Options {
        let encoding = match target {
            Target::Orc(encoding) => encoding,
            _ => Encoding::since_5_12(Layout::V6_4),
        };
        Options {
            boundaries,
            encoding,
            pads: !matches!(target, Target::Orc(_)),
        }
    }
}

/// The rows of all functions of `file`.
///
/// # Errors
/// If the file has unwind hints that cannot be read.
pub fn generate(file: &File, options: Options) -> Result<Generated, HintError> {
    generate_with(file, options, None)
}

/// What is told of each function: the walker has all states.
pub(crate) type Each<'a> = &'a mut dyn FnMut(&mut Walker<'_>);

/// Like [`generate`]; `each` gets what following each function gave, with all states.
pub(crate) fn generate_with(
    file: &File,
    options: Options,
    each: Option<Each<'_>>,
) -> Result<Generated, HintError> {
    let units = functions::find(file, options.boundaries);
    let edges = Edges::read(file);
    let hints = Hints::read(file, options.encoding)?;
    let sources = (&edges, &hints);
    let (never, rows) = settle(file, &units, sources, options.pads);
    if let Some(each) = each {
        let mut walker = Walker::new(file, &units, sources, &never);
        for index in 0..units.len() {
            if walker.follow(index).is_some() {
                each(&mut walker);
            }
        }
    }
    let mut found = Collected::default();
    for function in rows.into_iter().flatten() {
        found.add(function);
    }
    for unit in &units {
        if functions::is_untyped(file, unit.range.start) {
            found.add_unfollowed(unit);
        }
    }
    let plts = units.iter().filter(|unit| unit.entry == Entry::Plt);
    let plts: BTreeSet<u64> = plts.map(|unit| unit.range.start).collect();
    let mut generated = found.finish();
    for function in &mut generated.functions {
        let name = &function.name;
        let is_stub = plts.contains(&function.range.start)
            || name.starts_with(STATIC_CALL)
            || name.ends_with(PLT);
        if !is_stub && let Some(at) = function.unreached(file) {
            function.breaches.push((at, Breach::Unreachable));
        }
    }
    Ok(generated)
}

/// Follows all functions, and those that call functions that turn out never to return again, until
/// nothing changes. Returns the starts (svma) of those that never return, and what following each
/// unit gave last.
fn settle(
    file: &File,
    units: &[Unit],
    sources: (&Edges, &Hints),
    pads: bool,
) -> (BTreeSet<u64>, Vec<Vec<Function>>) {
    let mut never = BTreeSet::new();
    let mut callees: Vec<Vec<u64>> = Vec::new();
    let mut rows: Vec<Vec<Function>> = Vec::new();
    let mut fresh: BTreeSet<u64> = BTreeSet::new();
    for round in 0..ROUNDS_MAX {
        let mut found = BTreeSet::new();
        let mut walker = Walker::new(file, units, sources, &never);
        for (index, unit) in units.iter().enumerate() {
            let known = callees.get(index);
            let concerned = known.is_none_or(|c| c.iter().any(|callee| fresh.contains(callee)));
            if !concerned {
                continue;
            }
            let followed = walker.follow(index);
            let functions = match followed {
                Some(_) => walker.functions(pads),
                None => Vec::new(),
            };
            match rows.get_mut(index) {
                Some(rows) => *rows = functions,
                None => rows.push(functions),
            }
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
    (never, rows)
}

/// Functions being collected: parts of functions can be entered from several.
#[derive(Default)]
struct Collected {
    functions: Vec<Function>,
    /// By start and end (svma).
    index: HashMap<(u64, u64), usize>,
}

impl Collected {
    /// Adds a function, or the rows of another way into one that is there.
    fn add(&mut self, new: Function) {
        let key = (new.range.start, new.range.end);
        match self
            .index
            .get(&key)
            .and_then(|&at| self.functions.get_mut(at))
        {
            Some(old) => old.merge(new),
            None => {
                self.index.insert(key, self.functions.len());
                self.functions.push(new);
            }
        }
    }

    /// Adds assembly that nothing leads into.
    fn add_unfollowed(&mut self, unit: &Unit) {
        if !self.index.contains_key(&(unit.range.start, unit.range.end)) {
            self.add(Function {
                range: unit.range.clone(),
                name: unit.name.clone(),
                gaps: vec![(Gap::Hint, unit.range.start)],
                ..Function::default()
            });
        }
    }

    fn finish(self) -> Generated {
        let mut functions = self.functions;
        functions.sort_by_key(|f| f.range.start);
        Generated { functions }
    }
}

impl Generated {
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
