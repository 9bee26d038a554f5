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
use walk::{Followed, Walker};

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
    generate_with(file, options, |_, _| {})
}

/// Like [`generate`]; `each` gets what following each function gave, with all states.
///
/// # Errors
/// As [`generate`].
pub fn generate_with(
    file: &File,
    options: Options,
    mut each: impl FnMut(&mut Walker<'_>, &Followed),
) -> Result<Generated, HintError> {
    let units = functions::find(file, options.boundaries);
    let edges = Edges::read(file);
    let hints = Hints::read(file, options.encoding)?;
    let sources = (&edges, &hints);
    let never = never_return(file, &units, sources);
    let mut walker = Walker::new(file, &units, sources, &never);
    let mut found = Collected::default();
    for index in 0..units.len() {
        let Some(followed) = walker.follow(index) else {
            continue;
        };
        each(&mut walker, &followed);
        for function in walker.functions(options.pads) {
            found.add(function);
        }
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
        let is_stub =
            plts.contains(&function.range.start) || function.name.starts_with(STATIC_CALL);
        if !is_stub && let Some(at) = function.unreached(file) {
            function.breaches.push((at, Breach::Unreachable));
        }
    }
    Ok(generated)
}

/// The starts (svma) of the functions that never return, found by following all of them until nothing
/// changes.
fn never_return(file: &File, units: &[Unit], sources: (&Edges, &Hints)) -> BTreeSet<u64> {
    let mut never = BTreeSet::new();
    let mut callees: Vec<Vec<u64>> = Vec::new();
    let mut fresh: BTreeSet<u64> = BTreeSet::new();
    for round in 0..ROUNDS_MAX {
        let mut found = BTreeSet::new();
        let mut walker = Walker::new(file, units, sources, &never);
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
