//! The functions of a file: from its symbols, or from a table that it has.

use crate::file::File;
use crate::proof::program::{Entry, Program};
use std::ops::Range;

/// Where the boundaries of functions come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Boundaries {
    /// Symbols with a size.
    Symbols,
    /// The first table that the file has; symbols if it has none.
    Table,
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
}

/// The functions of `file`, by address, without overlaps. Of functions that share code, the first
/// and longest counts.
pub fn find(file: &File, boundaries: Boundaries) -> Vec<Unit> {
    let program = match boundaries {
        Boundaries::Symbols => None,
        Boundaries::Table => Some(Program::new(file)),
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
            })
            .collect(),
    }
}

fn from_symbols(file: &File) -> Vec<Unit> {
    let symbols = file.image().symbols().iter().filter(|s| s.size > 0);
    let mut units: Vec<Unit> = symbols
        .filter_map(|symbol| {
            let code = file.code_at(symbol.address)?;
            let end = symbol.address.checked_add(symbol.size)?.min(code.range.end);
            let entry = match is_untyped(file, symbol.address) {
                true => Entry::Part,
                false => entry(&symbol.name),
            };
            Some(Unit {
                range: symbol.address..end,
                name: symbol.name.clone(),
                entry,
                lsda: None,
            })
        })
        .collect();
    units.sort_by(|a, b| {
        let key = |u: &Unit| (u.range.start, u64::MAX - u.range.end);
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
    });
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

/// The cold part of a function is entered by jumps out of it only (GCC's `-freorder-blocks-and-partition`
/// and LLVM's hot-cold splitting name it so).
fn entry(name: &str) -> Entry {
    let is_part = name.ends_with(".cold") || name.contains(".cold.");
    if is_part { Entry::Part } else { Entry::Call }
}

fn name(file: &File, start: u64) -> String {
    file.names_at(start).next().unwrap_or_default().to_owned()
}
