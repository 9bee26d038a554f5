//! What the functions of a file know of each other.

pub(super) use super::effect::Endings;
pub use super::effect::{Effect, Pops, Returns};
pub use super::entry::{Entry, EntryEvidence, References};

use super::claims::{Claims, UserChoice};
use super::entry::entry;
use super::functions::{SharedCode, by_symbols, listed};
use super::no_return;
use super::returning;
pub use super::without_code::WithoutCode;
use crate::file::File;
use crate::gopclntab;
use crate::kernel::{self, SpecialSections};
use crate::table::{KINDS, Table};
use hashbrown::{HashMap, HashSet};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use unwind_sim_unwind::convention::{Convention, Evidence};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::rule::Value;

/// Sections that only kernels and their modules have.
const KERNEL_SECTIONS: [&str; 2] = [".orc_unwind_ip", ".gnu.linkonce.this_module"];

/// A file's functions and tables.
pub struct Program<'f> {
    /// The file.
    pub file: &'f File,
    /// Its tables.
    pub tables: Vec<Table>,
    /// Its functions, by address, without overlaps.
    pub functions: Vec<Unit>,
    /// The code (svma) that functions of its first table share.
    pub overlapping: Vec<Range<u64>>,
    /// Functions that a search does not find: another one starts at the same address.
    pub hidden: Vec<Range<u64>>,
    /// FDEs at addresses that have no code.
    pub without_code: WithoutCode,
    /// The numbers of the functions, by their first address (svma).
    starts: HashMap<u64, u32>,
    /// For each function, what is known of its return, and what it leaves changed.
    returns: Vec<AtomicU8>,
    effects: Vec<AtomicU64>,
    /// Addresses (svma) that are surely called: whatever the rows say, functions begin there.
    called: HashSet<u64>,
    /// The function at which the program starts.
    start: Range<u64>,
    /// The starts (svma) of functions that words of the file's data lead to. That is no proof that
    /// something calls them: where a function has no code at all (GCC, if it cannot be reached), its
    /// address is that of what follows it; and text may look like an address.
    pointed: HashSet<u64>,
    /// The starts (svma) of functions without code (GCC, if they cannot be reached). What lies there is
    /// another's.
    empty: HashSet<u64>,
    /// What a kernel module says of its own code.
    edges: Option<SpecialSections>,
    /// Whether it is a kernel, or a module of one.
    is_kernel: bool,
    /// What its instructions name. Few programs are asked.
    references: OnceLock<References>,
    /// The addresses (svma) inside of functions that pointers in the file's data lead to, in order.
    labels: Vec<u64>,
    /// What the user says of all functions.
    choice: UserChoice,
    /// Go's functions that defer calls, and where they continue after a recovered panic (svma).
    deferreturns: OnceLock<HashMap<u64, u64>>,
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
    /// The address (svma) at which it ends by the table that defines it. Another one may say that it
    /// is longer.
    pub own_end: u64,
    /// The number of the table that defines it.
    pub table: usize,
    /// Offset of its FDE in that table's section, bytes.
    pub offset: u64,
}

impl<'f> Program<'f> {
    /// Reads all tables of `file`. Code without a row has the functions that symbols name.
    pub fn with_unlisted(file: &'f File) -> Program<'f> {
        let mut program = Program::new(file);
        let listed = &program.functions;
        let mut others = by_symbols(file);

        // Where a table has code, it decides; symbols fill the room between.
        others.retain(|unit| {
            let next = listed.partition_point(|f| f.range.end <= unit.range.start);
            let is_apart = listed
                .get(next)
                .is_none_or(|f| unit.range.end <= f.range.start);
            is_apart && unit.entry == Entry::Call
        });

        let mut end = 0;

        // Symbols may overlap: several names for one function, or one within another. The first
        // wins.
        others.retain(|unit| {
            let is_apart = unit.range.start >= end;
            end = end.max(unit.range.end);
            is_apart
        });

        program.functions.extend(others);
        program.functions.sort_by_key(|f| f.range.start);

        // The numbers of functions have changed: whatever goes by number starts anew.
        program.starts = starts(&program.functions);
        let count = program.functions.len();
        program.returns.resize_with(count, || AtomicU8::new(0));
        program.effects.resize_with(count, || AtomicU64::new(0));

        program
    }

    /// Reads all tables of `file`.
    pub fn new(file: &'f File) -> Program<'f> {
        // The order is that in which walks use the tables.
        let mut tables: Vec<Table> = KINDS
            .into_iter()
            .filter_map(|k| Table::read(file, k))
            .collect();
        // A linker that does not know SFrame may leave these, which no reader finds.
        tables.extend(Table::behind(file));

        let empty = empty(&tables);
        let without_code = WithoutCode::of(file, &tables);

        // What is exported may be called from elsewhere.
        let exports = file.exports().iter().copied();
        let called: HashSet<u64> = exports.filter(|start| !empty.contains(start)).collect();

        let (functions, shared) = match listed(file, &tables, &called) {
            Some(listed) => listed,
            None if tables.is_empty() => (Vec::new(), SharedCode::default()),
            // ORC has no functions.
            None => (by_symbols(file), SharedCode::default()),
        };

        // Pointers in data lead to functions, or to labels inside of them, as those of jump tables
        // do.
        let is_listed = tables.iter().any(|t| t.kind() != TableKind::Orc);
        let (pointed, labels) = pointed(file, if is_listed { &functions } else { &[] });
        let pointed: HashSet<u64> = pointed.into_iter().collect();

        // Linking drops the sections that say where modules branch.
        let is_module = file.is_relocatable() && tables.iter().any(|t| t.kind() == TableKind::Orc);
        let edges = is_module.then(|| SpecialSections::read(file));
        let returns = functions.iter().map(|_| AtomicU8::new(0)).collect();
        let effects = functions.iter().map(|_| AtomicU64::new(0)).collect();

        let mut program = Program {
            starts: starts(&functions),
            file,
            tables,
            functions,
            overlapping: shared.all,
            hidden: shared.hidden,
            without_code,
            returns,
            effects,
            called,
            pointed,
            empty,
            edges,
            is_kernel: KERNEL_SECTIONS
                .iter()
                .any(|name| file.section_range(name).is_some()),
            references: OnceLock::new(),
            labels,
            choice: UserChoice::default(),
            deferreturns: OnceLock::new(),
            start: 0..0,
        };

        program.find_resolvers();

        // The function that the kernel or the loader enters first has no caller.
        let start = file.start().and_then(|entry| program.function_at(entry));
        program.start = start.map_or(0..0, |start| program.functions[start].range.clone());

        program
    }

    /// Keeps as the loader's resolver only code that something takes the address of and that no
    /// instruction jumps to: a part of a function with a frame of two words begins alike.
    fn find_resolvers(&mut self) {
        for index in 0..self.functions.len() {
            let unit = &self.functions[index];
            if unit.entry != Entry::Resolver {
                continue;
            }
            let start = unit.range.start;
            let references = self.references();
            let is_known = references.has_address(start) || self.is_pointed_to(start);
            if !is_known || references.has_jump_into(&unit.range, |_| true) {
                self.functions[index].entry = Entry::Part;
            }
        }
    }

    /// Lets the user's choice overrule what the file says.
    pub fn choose(&mut self, choice: UserChoice) {
        self.choice = choice;
    }

    /// The convention of the code at `address` (svma), and what says so.
    pub fn convention(&self, address: u64) -> (Convention, Evidence) {
        self.choice
            .convention(self.file.image().convention(address))
    }

    /// What the rows of the function at `address` (svma) claim.
    pub fn claims(&self, address: u64) -> Claims {
        let claims = self.choice.claims(self.convention(address).0);
        if self.is_kernel {
            claims.in_kernel()
        } else {
            claims
        }
    }

    /// Where the Go function that starts at `start` (svma) continues after a recovered panic.
    pub fn deferreturn(&self, start: u64) -> Option<u64> {
        let all = self
            .deferreturns
            .get_or_init(|| gopclntab::deferreturns(self.file));
        all.get(&start).copied()
    }

    /// Whether the program starts in the function at `address` (svma). A row there that says where
    /// the return address is cannot be right, unless the function is called, too.
    pub fn begins_at(&self, address: u64) -> bool {
        self.start.contains(&address)
    }

    /// The addresses (svma) in `range` that pointers in the file's data lead to, without those of
    /// functions: the labels of `switch` and `goto`.
    pub fn labels_in(&self, range: &Range<u64>) -> &[u64] {
        let first = self.labels.partition_point(|&l| l < range.start);
        let end = self.labels.partition_point(|&l| l < range.end);
        self.labels.get(first..end).unwrap_or(&[])
    }

    /// Learns that these addresses (svma) are called. Returns the numbers of the functions that were
    /// taken for parts of others, and are functions of their own now.
    pub fn learn_called<'a>(&mut self, called: impl Iterator<Item = &'a u64>) -> Vec<usize> {
        let mut entered = Vec::new();
        for &target in called {
            // A function without code is called, not the part of another that lies behind it.
            if self.empty.contains(&target) || !self.called.insert(target) {
                continue;
            }
            if let Some(index) = self.starting_at(target)
                && self.functions[index].entry == Entry::Part
            {
                self.functions[index].entry = Entry::Call;
                entered.push(index);
            }
        }
        entered
    }

    /// Whether function `index` starts at `address` (svma), and the rows of all tables say that its return
    /// address is in a register there: no call instruction leads to it, only a jump behind code that
    /// takes its own address.
    pub fn is_entered_by_register(&self, index: usize, address: u64) -> bool {
        let is_in_register = |table: &Table| {
            let row = table.row_at(address);
            row.is_some_and(|row| {
                let in_register = |reg| row.rule.ra == Value::reg(reg, 0);
                Reg::ALL.into_iter().any(in_register)
            })
        };
        let unit = &self.functions[index];
        unit.range.start == address
            && unit.entry == Entry::Part
            && !self.tables.is_empty()
            && self.tables.iter().all(is_in_register)
    }

    /// Whether `address` (svma) is surely called: by a call of the same file that names it, by
    /// others, or by the C library.
    pub fn is_called(&self, address: u64) -> bool {
        self.called.contains(&address) || self.file.names_at(address).any(|name| name == "main")
    }

    /// Reads function `index` again from function `number` of the first table, whose rows were
    /// replaced.
    pub fn update(&mut self, index: usize, number: usize) {
        let Some(table) = self.tables.first() else {
            return;
        };
        let functions = (self.functions.get_mut(index), table.functions().get(number));
        if let (Some(unit), Some(function)) = functions {
            unit.range = function.range.clone();
            unit.own_end = unit.range.end;
            unit.entry = entry(self.file, table, function, &self.called);
        }
    }

    /// Whether a word of the file's data leads to the function at `start` (svma), and is not one of a
    /// jump table.
    pub fn is_pointed_to(&self, start: u64) -> bool {
        self.pointed.contains(&start)
    }

    /// What the program's instructions name, reached or not.
    pub fn references(&self) -> &References {
        self.references
            .get_or_init(|| References::read(self.file, &self.functions))
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

    /// The number of the function that starts at `address` (svma).
    pub fn starting_at(&self, address: u64) -> Option<usize> {
        self.starts.get(&address).map(|&index| index as usize)
    }

    /// Whether the function at `address` (svma) has the file's entry point. Unlike
    /// [`Program::begins_at`], this counts libraries, too: the loader is started as well, so a row there
    /// may say that there is no caller.
    pub fn is_start(&self, address: u64) -> bool {
        let start = self.file.entry().and_then(|entry| self.function_at(entry));
        start.is_some() && start == self.function_at(address)
    }

    /// Whether a call of `target` (svma) never returns.
    pub fn never_returns(&self, target: u64) -> bool {
        if self.returns(target) == Returns::Never {
            return true;
        }
        self.file
            .names_at(target)
            .any(|name| self.is_known_not_to_return(name))
    }

    /// What is known of the return of the function at `target` (svma), apart from its name.
    pub fn returns(&self, target: u64) -> Returns {
        let index = self.starting_at(target);
        let number = index.map_or(0, |i| self.returns[i].load(Ordering::Relaxed));
        Returns::of_number(number)
    }

    /// What the function at `target` (svma) leaves changed for its caller.
    pub fn effect(&self, target: u64) -> Effect {
        let index = self.starting_at(target);
        let number = index.map_or(0, |i| self.effects[i].load(Ordering::Relaxed));
        Effect::of_number(number)
    }

    /// Remembers what function `index` leaves changed, beside what was known before: what one round
    /// finds, the next one may not be able to tell. Returns whether that is news.
    pub fn set_effect(&self, index: usize, effect: Effect) -> bool {
        let old = self.effects[index].load(Ordering::Relaxed);
        let known = Effect::of_number(old);
        let effect = if known == Effect::default() {
            effect
        } else {
            known.or(effect)
        };
        self.effects[index].store(effect.number(), Ordering::Relaxed);
        effect != known
    }

    /// Whether functions of this name never return: in a kernel module, also the kernel's.
    pub fn is_known_not_to_return(&self, name: &str) -> bool {
        no_return::is_known(name) || self.edges.is_some() && kernel::never_returns(name)
    }

    /// Whether a call of a function of this name returns, which may be another file's.
    pub fn returns_by_name(&self, name: &str) -> Returns {
        if self.is_known_not_to_return(name) {
            Returns::Never
        } else {
            Returns::Maybe
        }
    }

    /// What a kernel module says of its own code; `None` for all else.
    pub fn edges(&self) -> Option<&SpecialSections> {
        self.edges.as_ref()
    }

    /// Whether a call of `target` (svma) surely may return, as its code says or, of the stub of a function
    /// of another file, its name. A function of this file with such a name is what its code is.
    pub fn surely_returns(&self, target: u64) -> bool {
        let is_known = |name: &str| name.ends_with("@plt") && returning::is_known(name);
        self.returns(target) == Returns::Surely || self.file.names_at(target).any(is_known)
    }

    /// Remembers whether function `index` returns. Returns whether that is news.
    pub fn set_returns(&self, index: usize, returns: Returns) -> bool {
        let new = returns.number();
        self.returns[index].swap(new, Ordering::Relaxed) != new
    }
}

/// The starts (svma) of functions without code: FDEs of length 0.
fn empty(tables: &[Table]) -> HashSet<u64> {
    let functions = tables.iter().flat_map(Table::functions);
    let functions = functions.filter(|f| f.range.is_empty());
    functions.map(|f| f.range.start).collect()
}

/// The numbers of the functions, by their first address (svma).
fn starts(functions: &[Unit]) -> HashMap<u64, u32> {
    functions.iter().map(|f| f.range.start).zip(0..).collect()
}

/// The distance of neighbouring words, bytes.
const WORD: u64 = 8;

/// The addresses (svma) that pointers in the file's data lead to: those of functions, and the labels
/// inside of functions, in order. What lies beside labels is no function: a jump table leads to parts
/// of functions as well.
fn pointed(file: &File, functions: &[Unit]) -> (Vec<u64>, Vec<u64>) {
    // A label lies inside of a function, and not at the start of another one.
    let is_label = |&(_, to): &(u64, u64)| {
        let after = functions.partition_point(|f| f.range.start < to);
        let before = after.checked_sub(1).and_then(|i| functions.get(i));
        before.is_some_and(|f| to < f.range.end)
            && functions.get(after).is_none_or(|f| f.range.start != to)
    };

    let pointers = file.pointers();
    let mut is_of_table = vec![false; pointers.len()];
    // In both directions, because words of a table stand on either side of one with a label.
    mark_tables(pointers.iter().zip(&mut is_of_table), is_label);
    mark_tables(pointers.iter().zip(&mut is_of_table).rev(), is_label);

    let (mut called, mut labels) = (Vec::new(), Vec::new());

    // A single word of a program with fixed addresses may be text.
    let is_beside = |at: Option<usize>, pointer: &(u64, u64)| {
        let other = at.and_then(|at| pointers.get(at));
        other.is_some_and(|other| other.0.abs_diff(pointer.0) == WORD && is_label(other))
    };
    let is_certain = |at: usize, pointer: &(u64, u64)| {
        !file.is_fixed()
            || is_beside(at.checked_sub(1), pointer)
            || is_beside(Some(at + 1), pointer)
    };

    for (at, (pointer, is_of_table)) in pointers.iter().zip(is_of_table).enumerate() {
        if is_label(pointer) {
            if is_certain(at, pointer) {
                labels.push(pointer.1);
            }
        } else if !is_of_table {
            called.push(pointer.1);
        }
    }

    labels.sort_unstable();
    labels.dedup();
    (called, labels)
}

/// Marks the words that follow one with a label, and repetitions of such a word.
fn mark_tables<'a>(
    pointers: impl Iterator<Item = (&'a (u64, u64), &'a mut bool)>,
    is_label: impl Fn(&(u64, u64)) -> bool,
) {
    let mut last: Option<((u64, u64), bool)> = None;
    for (&pointer, is_of_table) in pointers {
        let follows = last.is_some_and(|(before, was)| {
            before.0.abs_diff(pointer.0) == WORD
                && (is_label(&before) || was && before.1 == pointer.1)
        });
        *is_of_table |= follows;
        last = Some((pointer, follows));
    }
}
