//! The functions of a file: from its symbols, from a table that it has, and from what enters code that
//! both leave out.

use crate::file::File;
use crate::proof::program::{Entry, Program};
use std::collections::BTreeSet;
use std::ops::Range;
use unwind_sim_unwind::image::Symbol;

/// The maximum length of a function whose end is not known, bytes.
const OPEN_LEN_MAX: u64 = 1 << 20;
/// The sections with the code that the loader calls first and last (System V gABI, chapter 4,
/// "Special Sections").
const INIT_CODE: [&str; 2] = [".init", ".fini"];
/// The sections with the addresses of functions that the loader calls.
const INIT_ARRAYS: [&str; 3] = [".preinit_array", ".init_array", ".fini_array"];
/// The length of an address, bytes.
const WORD: usize = 8;
/// The maximum length of such a section that is read, bytes.
const INIT_ARRAY_MAX: u64 = 1 << 20;

/// Sections of a kernel with code that belongs to functions elsewhere; objtool gives it no rows.
pub(super) const NOT_EXECUTED: [&str; 2] = [".altinstr_replacement", ".altinstr_aux"];

/// Where the boundaries of functions come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Boundaries {
    /// Symbols with a size.
    Symbols,
    /// The first table that the file has; symbols if it has none.
    Table,
    /// The first table that the file has, unless that is ORC, whose pieces are not functions; symbols
    /// with a size, where it has none; and elsewhere code that is entered as a function: where the
    /// program starts, what the loader calls, and what followed code calls.
    All,
}

/// A function to follow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unit {
    /// Its addresses (svma).
    pub range: Range<u64>,
    /// Its name; empty if no symbol has its start.
    pub name: String,
    /// How it is entered.
    pub entry: Entry,
    /// The address (svma) of its language-specific data.
    pub lsda: Option<u64>,
    /// Whether nothing says where it ends: it is no longer than its range.
    pub is_open: bool,
}

/// The functions of `file`, by address, without overlaps. Of functions that share code, the first
/// and longest counts.
pub fn find(file: &File, boundaries: Boundaries) -> Vec<Unit> {
    let program = match boundaries {
        Boundaries::Symbols => None,
        Boundaries::Table => Some(Program::new(file)),
        Boundaries::All if file.is_relocatable() || is_kernel(file) => None,
        Boundaries::All => Some(Program::with_unlisted(file)),
    };
    match program.filter(|p| !p.functions.is_empty()) {
        None => from_symbols(file),
        Some(program) => program
            .functions
            .iter()
            .map(|unit| Unit {
                range: unit.range.clone(),
                name: name(file, unit.range.start),
                entry: unit.entry,
                lsda: unit.lsda,
                is_open: false,
            })
            .collect(),
    }
}

/// Whether it has ORC, whose pieces are not functions.
pub(super) fn is_kernel(file: &File) -> bool {
    file.section_range(".orc_unwind_ip").is_some()
}

/// The code (svma) that is entered when the program starts, and that the loader calls.
pub fn entries(file: &File) -> Vec<u64> {
    let mut entries: Vec<u64> = file.start().into_iter().collect();
    let init = file.code().iter();
    let init = init.filter(|code| INIT_CODE.contains(&code.name.as_str()));
    entries.extend(init.map(|code| code.range.start));
    if file.is_relocatable() {
        return entries;
    }
    for array in INIT_ARRAYS
        .iter()
        .filter_map(|name| file.section_range(name))
    {
        let words =
            (array.start..array.end.min(array.start.saturating_add(INIT_ARRAY_MAX))).step_by(WORD);
        entries.extend(words.filter_map(|word| file.pointer(word)));
    }
    entries
}

/// Adds functions that start at `starts` (svma) to `units`, which are in order, where those have no
/// code: up to the next function, or to the end of the section. Returns the starts of the functions
/// that are new, or shorter than they were.
pub fn open(file: &File, units: &mut Vec<Unit>, starts: &BTreeSet<u64>) -> Vec<u64> {
    let mut changed = Vec::new();
    for &start in starts {
        let code = file.code_at(start);
        let Some(code) = code.filter(|code| !NOT_EXECUTED.contains(&code.name.as_str())) else {
            continue;
        };

        // The function that has this address so far, if any.
        let after = units.partition_point(|u| u.range.start <= start);
        let before = after.checked_sub(1).and_then(|at| units.get_mut(at));
        if let Some(before) = before.filter(|before| start < before.range.end) {
            // Only an end that no table and no symbol gives can be moved.
            if !before.is_open || before.range.start == start {
                continue;
            }

            before.range.end = start;
            changed.push(before.range.start);
        }

        // The end is not known, so it is as far as anything else allows.
        let next = units.get(after).map_or(u64::MAX, |u| u.range.start);
        let end = code.range.end.min(next);
        let end = end.min(start.saturating_add(OPEN_LEN_MAX));
        let unit = Unit {
            range: start..end,
            name: name(file, start),
            entry: Entry::Call,
            lsda: None,
            is_open: true,
        };
        units.insert(after, unit);
        changed.push(start);
    }

    // A function may have been shortened more than once.
    changed.sort_unstable();
    changed.dedup();
    changed
}

/// Adds `new`, which are in code that no unit has, or one whose end is not known: that one ends there.
pub(super) fn insert(units: &mut Vec<Unit>, new: &mut Vec<Unit>) {
    units.append(new);
    units.sort_by_key(|unit| unit.range.start);
    let starts: Vec<u64> = units.iter().skip(1).map(|unit| unit.range.start).collect();
    for (unit, next) in units.iter_mut().zip(starts) {
        if unit.is_open {
            unit.range.end = unit.range.end.min(next);
        }
    }
}

fn from_symbols(file: &File) -> Vec<Unit> {
    let symbols = file.image().symbols().iter().filter(|s| s.size > 0);
    let mut units: Vec<Unit> = symbols
        .filter_map(|symbol| {
            // A symbol may claim more than its section has.
            let code = file.code_at(symbol.address)?;
            let end = symbol.address.checked_add(symbol.size)?.min(code.range.end);
            let entry = if is_untyped(file, symbol.address) {
                Entry::Part
            } else {
                entry(&symbol.name)
            };
            Some(Unit {
                range: symbol.address..end,
                name: symbol.name.clone(),
                entry,
                lsda: None,
                is_open: false,
            })
        })
        .collect();

    // Of functions that overlap, the first stays; of those with one start, the longest.
    units.sort_by(|a, b| {
        let key = |u: &Unit| (u.range.start, u64::MAX - u.range.end);
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
    });

    // Functions are in order now, so one comparison is enough for each.
    let mut end = 0;
    units.retain(|unit| {
        let apart = unit.range.start >= end;
        if apart {
            end = unit.range.end;
        }
        apart
    });

    units
}

/// Whether the symbols say that assembly begins at `address` (svma) that is not a function
/// (`SYM_CODE_START` in Linux `include/linux/linkage.h`).
pub fn is_untyped(file: &File, address: u64) -> bool {
    let untyped = file.untyped();
    untyped
        .binary_search_by_key(&address, |range| range.start)
        .is_ok()
}

/// A part of a function is entered by jumps out of it only.
fn entry(name: &str) -> Entry {
    if Symbol::is_named_as_part(name) {
        Entry::Part
    } else {
        Entry::Call
    }
}

fn name(file: &File, start: u64) -> String {
    file.names_at(start).next().unwrap_or_default().to_owned()
}
