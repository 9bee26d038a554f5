//! A table from the code alone: the abstract interpreter of [`crate::proof`], writing.
//!
//! - [`function`]: the rows of one function;
//! - [`functions`]: the functions of a file;
//! - `discover`: functions that nothing calls by name;
//! - [`outside`]: code in no function;
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
mod discover;
pub mod function;
pub mod functions;
pub mod object;
pub mod outside;
pub mod rows;
pub mod walk;
pub mod write;

use crate::batches;
use crate::file::File;
use crate::gopclntab;
pub use function::{Function, GAPS, Gap};
pub use functions::Boundaries;

use crate::convert::Target;
use crate::hints::{HintError, Hints};
use crate::kernel::SpecialSections;
use crate::proof::program::Entry;
use breach::Breach;
use discover::OccupiedRanges;
use functions::Unit;
use hashbrown::{HashMap, HashSet};
use outside::UncoveredCode;
use std::collections::BTreeSet;
use std::num::NonZero;
use unwind_sim_unwind::orc::{Encoding, Layout};
use unwind_sim_unwind::rule::Rule;
use walk::{FollowSummary, Walker};

/// The maximum number of times that functions are followed until it is known which return, and all are
/// found.
const ROUNDS_MAX: usize = 64;

/// The maximum number of times that functions are looked for in code that none has.
const DISCOVERIES_MAX: usize = 8;

/// The number of units that a thread takes at a time.
const BATCH: usize = 16;
/// The number of units that are worth a thread.
const THREAD_MIN: usize = 128;

/// What the names of the kernel's static calls begin with: a jump, and space to patch.
const STATIC_CALL: &str = "__SCT__";

/// What the names that [`unwind_sim_unwind::elf`] gives to stubs end with.
const PLT: &str = "@plt";

/// A generated table.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Generated {
    /// The functions, by address.
    pub functions: Vec<Function>,
    /// Code in no function, by section.
    pub outside: Vec<UncoveredCode>,
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

/// Called after each function was followed, with the walker, which still has the states.
pub(crate) type FollowedHook<'a> = &'a mut dyn FnMut(&mut Walker<'_>);

/// Like [`generate`]; `each` gets what following each function gave, with all states.
pub(crate) fn generate_with(
    file: &File,
    options: Options,
    each: Option<FollowedHook<'_>>,
) -> Result<Generated, HintError> {
    let edges = SpecialSections::read(file);
    let hints = Hints::read(file, options.encoding)?;
    let sources = (&edges, &hints);
    let FollowedProgram {
        units,
        never,
        mut followed,
        ends,
    } = settle(file, sources, options);

    if let Some(each) = each {
        // Once more, and with all states: only now it is known which functions never return.
        let mut walker = Walker::new(file, &units, sources, &never).ending_at(&ends);
        walker.keep_states();
        for index in 0..units.len() {
            if walker.follow(index).is_some() {
                each(&mut walker);
            }
        }
    }

    // Functions are put together by address, whoever led to them.
    let mut found = FunctionSet::default();
    for unit in &units {
        let kept = followed.remove(&unit.range.start).unwrap_or_default();
        for function in kept.functions {
            found.add(function, &units);
        }
    }

    // Assembly that is no function (`SYM_CODE_START`) was not followed, but is listed.
    for unit in &units {
        if functions::is_untyped(file, unit.range.start) {
            found.add_unfollowed(unit);
        }
    }

    // In stubs, what lies behind the jump is not reached, which is no breach.
    let plts = units.iter().filter(|unit| unit.entry == Entry::Plt);
    let plts: BTreeSet<u64> = plts.map(|unit| unit.range.start).collect();

    let mut generated = found.finish(&units);
    generated.outside = outside::find(file, &units, &generated.functions);
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

/// What is known when all functions were followed.
struct FollowedProgram {
    /// The functions, by address.
    units: Vec<Unit>,
    /// The starts (svma) of those that never return.
    never: BTreeSet<u64>,
    /// What following each gave last, by its start (svma).
    followed: HashMap<u64, FollowedUnit>,
    /// Where functions whose ends are not known end, behind calls (svma).
    ends: HashSet<u64>,
}

/// What is kept of a function that was followed.
#[derive(Default)]
struct FollowedUnit {
    callees: Vec<u64>,
    functions: Vec<Function>,
}

/// Follows all functions, and those in code that none of them has, until nothing is found.
fn settle(file: &File, sources: (&SpecialSections, &Hints), options: Options) -> FollowedProgram {
    // What symbols and tables say is where it starts from.
    let mut settled = FollowedProgram {
        units: functions::find(file, options.boundaries),
        never: BTreeSet::new(),
        followed: HashMap::new(),
        ends: HashSet::new(),
    };
    let finds_more = options.boundaries == Boundaries::All;
    // Objects and kernels have symbols.
    let discovers = finds_more && !file.is_relocatable() && !functions::is_kernel(file);
    if discovers {
        settled.ends = discover::ends(file);
    }

    // What enters code may be a function that no table or symbol names.
    if finds_more {
        let mut entries: BTreeSet<u64> = functions::entries(file).into_iter().collect();
        entries.extend(gopclntab::starts(file));

        functions::open(file, &mut settled.units, &entries);
    }

    // All functions are followed first; what is discovered depends on what they left.
    let todo = (0..settled.units.len()).collect();
    rounds(file, sources, options, &mut settled, todo);
    if !discovers {
        return settled;
    }

    // Discovering goes by what is known, and makes more known: so it is repeated, but not without
    // end.
    let mut refused = BTreeSet::new();
    for _ in 0..DISCOVERIES_MAX {
        let mut found = discovered(file, sources, options, &settled, &mut refused);
        if found.is_empty() {
            break;
        }

        let starts: Vec<u64> = found.iter().map(|unit| unit.range.start).collect();
        functions::insert(&mut settled.units, &mut found);
        // Their numbers are known only now that all are in their places.
        let number = |start: u64| {
            let units = &settled.units;
            units.binary_search_by_key(&start, |u| u.range.start).ok()
        };
        let todo = starts.into_iter().filter_map(number).collect();
        rounds(file, sources, options, &mut settled, todo);
    }
    settled
}

/// The functions in code that no function has, each up to where another one may start; what is not one
/// is `refused` from then on.
fn discovered(
    file: &File,
    sources: (&SpecialSections, &Hints),
    options: Options,
    settled: &FollowedProgram,
    refused: &mut BTreeSet<u64>,
) -> Vec<Unit> {
    let taken = OccupiedRanges::new(&settled.units, &settled.followed);
    let mut starts = discover::find(file, &taken, &settled.ends);
    starts.retain(|start| !refused.contains(start));

    // Tried on a copy: only what turns out to be a function is kept.
    let mut units = settled.units.clone();

    // A candidate ends where the next one starts, or where the section does.
    functions::open(file, &mut units, &starts);
    let number = |start: &u64| units.binary_search_by_key(start, |u| u.range.start).ok();
    let todo: Vec<usize> = starts.iter().filter_map(number).collect();
    let (never, ends) = (&settled.never, &settled.ends);

    let tried = follow_all(
        &todo,
        || Walker::new(file, &units, sources, never).ending_at(ends),
        options.pads,
    );

    let mut found = Vec::new();

    // They are judged one by one, by what following them gave.
    for done in tried {
        let Some(unit) = units.get(done.index) else {
            continue;
        };
        let start = unit.range.start;
        if discover::is_function(file, &settled.units, start, &done.functions) {
            found.push(unit.clone());
        } else {
            refused.insert(start);
        }
    }

    found
}

/// Follows the units `todo`; then those that were found by that, and those that call functions that turn
/// out never to return again, until nothing changes.
fn rounds(
    file: &File,
    sources: (&SpecialSections, &Hints),
    options: Options,
    settled: &mut FollowedProgram,
    mut todo: Vec<usize>,
) {
    let finds_more = options.boundaries == Boundaries::All;

    // Each round follows what the last one has changed.
    for _ in 0..ROUNDS_MAX {
        let (mut fresh, mut entered) = (BTreeSet::new(), BTreeSet::new());
        let (units, never, ends) = (&settled.units, &settled.never, &settled.ends);
        let all = follow_all(
            &todo,
            || Walker::new(file, units, sources, never).ending_at(ends),
            options.pads,
        );

        for done in all {
            let Some(unit) = units.get(done.index) else {
                continue;
            };

            // The newest rows count, since more is known now.
            let start = unit.range.start;
            let kept = settled.followed.entry(start).or_default();
            kept.functions = done.functions;
            let Some(followed) = done.followed else {
                continue;
            };
            if !followed.returns && !never.contains(&start) {
                fresh.insert(start);
            }
            entered.extend(followed.entered);
            // Behind calls that never return are no others.
            if kept.callees.is_empty() {
                kept.callees = followed.callees;
            }
        }

        // The new functions, and those that have become shorter by them, are followed next.
        let mut starts = if finds_more {
            functions::open(file, &mut settled.units, &entered)
        } else {
            Vec::new()
        };

        // Callers of what never returns were followed behind their calls, where no way leads.
        let calls_fresh =
            |kept: &FollowedUnit| kept.callees.iter().any(|callee| fresh.contains(callee));
        if !fresh.is_empty() {
            let concerned = settled
                .followed
                .iter()
                .filter(|(_, kept)| calls_fresh(kept));
            starts.extend(concerned.map(|(start, _)| *start));
        }

        // Only now, so that a whole round goes by the same knowledge, in whatever order it is done.
        settled.never.append(&mut fresh);
        if starts.is_empty() {
            break;
        }

        // Functions may have been inserted, so numbers are looked up again by address.
        starts.sort_unstable();
        starts.dedup();
        let number = |start: u64| {
            let units = &settled.units;
            units.binary_search_by_key(&start, |u| u.range.start).ok()
        };
        todo = starts.into_iter().filter_map(number).collect();
    }
}

/// What following a unit gave.
struct UnitResult {
    /// The number of the unit.
    index: usize,
    /// `None` if it is not entered by itself.
    followed: Option<FollowSummary>,
    /// Its rows, and those of its cold parts.
    functions: Vec<Function>,
}

/// Follows the units `todo`, on as many threads as there is work for. The result does not depend on
/// their number, but for its order.
fn follow_all<'g>(
    todo: &[usize],
    walker: impl Fn() -> Walker<'g> + Sync,
    pads: bool,
) -> Vec<UnitResult> {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = processors.min(todo.len().div_ceil(THREAD_MIN));
    batches::work(todo, (threads, BATCH), walker, |walker, index| {
        let followed = walker.follow(index);
        let functions = match followed {
            Some(_) => walker.functions(pads),
            None => Vec::new(),
        };
        UnitResult {
            index,
            followed,
            functions,
        }
    })
}

/// Functions being collected: parts of functions can be entered from several.
#[derive(Default)]
struct FunctionSet {
    functions: Vec<Function>,
    /// By start (svma).
    index: HashMap<u64, usize>,
}

impl FunctionSet {
    /// Adds a function, or the rows of another way into one that is there. One whose end was not known
    /// when it was followed has that of its unit.
    fn add(&mut self, mut new: Function, units: &[Unit]) {
        let start = new.range.start;
        if let Ok(unit) = units.binary_search_by_key(&start, |unit| unit.range.start) {
            new.clip(units[unit].range.end);
        }
        match self
            .index
            .get(&start)
            .and_then(|&at| self.functions.get_mut(at))
        {
            Some(old) => old.merge(new),
            None => {
                self.index.insert(start, self.functions.len());
                self.functions.push(new);
            }
        }
    }

    /// Adds assembly that nothing leads into.
    fn add_unfollowed(&mut self, unit: &Unit) {
        let start = unit.range.start;
        if !self.index.contains_key(&start) {
            self.index.insert(start, self.functions.len());
            self.functions.push(Function {
                range: unit.range.clone(),
                name: unit.name.clone(),
                gaps: vec![(Gap::Hint, start)],
                ..Function::default()
            });
        }
    }

    fn finish(self, units: &[Unit]) -> Generated {
        let mut functions = self.functions;
        for unit in units.iter().filter(|unit| unit.is_open) {
            let found = self.index.get(&unit.range.start);
            if let Some(function) = found.and_then(|&at| functions.get_mut(at)) {
                function.close();
            }
        }
        functions.sort_by_key(|f| f.range.start);
        Generated {
            functions,
            outside: Vec::new(),
        }
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
