//! What the functions of a file know of each other.

use super::no_return;
use crate::file::File;
use crate::table::{KINDS, Table};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{Rule, RuleKind, Value as RuleValue};

/// A file's functions and tables.
pub struct Program<'f> {
    /// The file.
    pub file: &'f File,
    /// Its tables.
    pub tables: Vec<Table>,
    /// Its functions, by address, without overlaps.
    pub functions: Vec<Unit>,
    /// Functions that share code with one before them.
    pub overlapping: Vec<Range<u64>>,
    /// For each function, what is known of its return.
    returns: Vec<AtomicU8>,
}

/// How a function is entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// By a call to its first instruction.
    Call,
    /// Only by jumps from another part of the same function.
    Part,
    /// By calls to each of its stubs.
    Plt,
    /// By the kernel, on return from a signal handler.
    Signal,
}

/// A function, as the table that defines it sees it: an FDE.
#[derive(Clone, Debug)]
pub struct Unit {
    /// Its addresses (svma).
    pub range: Range<u64>,
    /// The address (svma) of its language-specific data.
    pub lsda: Option<u64>,
    /// How it is entered.
    pub entry: Entry,
    /// Offset of its FDE in the first table's section, bytes.
    pub offset: u64,
}

/// What is known of a function's return.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Returns {
    /// It may return.
    Maybe = 0,
    /// It never returns.
    Never = 1,
}

impl<'f> Program<'f> {
    /// Reads all tables of `file`.
    pub fn new(file: &'f File) -> Program<'f> {
        let tables: Vec<Table> = KINDS
            .into_iter()
            .filter_map(|k| Table::read(file, k))
            .collect();
        let mut functions: Vec<Unit> = match tables.first() {
            Some(table) => table
                .functions()
                .iter()
                .filter(|f| !f.range.is_empty())
                .map(|f| Unit {
                    range: f.range.clone(),
                    lsda: f.lsda,
                    offset: f.offset,
                    entry: entry(file, table, f),
                })
                .collect(),
            None => Vec::new(),
        };
        let mut overlapping = Vec::new();
        let mut end = 0;
        functions.retain(|f| {
            let apart = f.range.start >= end;
            if apart {
                end = f.range.end;
            } else {
                overlapping.push(f.range.clone());
            }
            apart
        });
        let returns = functions.iter().map(|_| AtomicU8::new(0)).collect();
        Program {
            file,
            tables,
            functions,
            overlapping,
            returns,
        }
    }

    /// The number of the function that contains `address` (svma).
    pub fn function_at(&self, address: u64) -> Option<usize> {
        let after = self.functions.partition_point(|f| f.range.start <= address);
        let index = after.checked_sub(1)?;
        self.functions[index]
            .range
            .contains(&address)
            .then_some(index)
    }

    /// Whether `address` (svma) lies in a part of a function that only jumps lead to.
    pub fn is_part(&self, address: u64) -> bool {
        let function = self.function_at(address).map(|f| &self.functions[f]);
        function.is_some_and(|f| f.entry == Entry::Part)
    }

    /// Whether the program starts in the function at `address` (svma): nothing calls it.
    pub fn is_start(&self, address: u64) -> bool {
        let start = self.file.entry().and_then(|entry| self.function_at(entry));
        start.is_some() && start == self.function_at(address)
    }

    /// Whether a call of `target` (svma) never returns.
    pub fn never_returns(&self, target: u64) -> bool {
        if let Some(index) = self.function_at(target)
            && self.functions[index].range.start == target
            && self.returns[index].load(Ordering::Relaxed) == Returns::Never as u8
        {
            return true;
        }
        self.file.names_at(target).any(no_return::is_known)
    }

    /// Remembers whether function `index` returns. Returns whether that is news.
    pub fn set_returns(&self, index: usize, returns: Returns) -> bool {
        let old = self.returns[index].swap(returns as u8, Ordering::Relaxed);
        old != returns as u8
    }
}

/// The instruction `nop`.
const NOP: u8 = 0x90;

/// How the function is entered, by what its own table says of its first instruction, and by where it
/// lies.
fn entry(file: &File, table: &Table, function: &crate::table::Function) -> Entry {
    let section = file.code_at(function.range.start);
    if section.is_some_and(|s| s.name.starts_with(".plt") || s.name == ".iplt") {
        return Entry::Plt;
    }
    let Some(first) = table.rows(function).next() else {
        return Entry::Call;
    };
    // GCC begins a cold part with a nop if a landing pad would be its first instruction.
    if let Some(second) = table.rows(function).nth(1)
        && first.end - first.start == 1
        && file.bytes(first.start).first() == Some(&NOP)
        && !is_entry_rule(second.rule)
    {
        return Entry::Part;
    }
    match first.rule {
        rule if rule.kind == RuleKind::Signal => Entry::Signal,
        rule if is_entry_rule(rule) || rule.kind == RuleKind::Outermost => Entry::Call,
        _ => Entry::Part,
    }
}

/// Whether this is the rule of a function's first instruction: the return address on top of the
/// stack, and nothing saved.
fn is_entry_rule(rule: &Rule) -> bool {
    let unchanged = |v: RuleValue| matches!(v, RuleValue::Same | RuleValue::Unspecified);
    rule.cfa == RuleValue::reg(Reg::Rsp, 8) && rule.saved.into_iter().all(unchanged)
}
