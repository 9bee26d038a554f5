//! The symbols of an object, found as perf finds them.
//!
//! perf keeps symbols in a red-black tree by start. If symbols overlap, the one that it finds
//! depends on the shape of the tree. Here they are a sorted list, and the tree ([`shape`]) is built
//! only when an address is looked up that more than one symbol may contain. Ends and duplicates are
//! handled as in `symbols__fixup_end` and `symbols__fixup_duplicate` of `tools/perf/util/symbol.c`
//! (Linux 7.2).

mod names;
mod shape;

use super::helper::{Helper, Owner};
use names::Names;
use shape::Shape;
use std::collections::HashMap;
use std::ops::Range;

pub(super) use names::NameRef;

/// `STB_WEAK`.
const WEAK: u8 = 2;
/// `STB_GLOBAL`.
const GLOBAL: u8 = 1;
/// `STT_NOTYPE`.
const NOTYPE: u8 = 0;
/// The end of the last symbol is rounded up to this, bytes.
const PAGE: u64 = 4096;
/// Maximum length of a name, bytes; the rest is cut off.
const NAME_MAX: usize = 1 << 16;
/// Default limit on all stored names together, bytes.
const NAMES_MAX: usize = 1 << 30;

/// A symbol to be inserted.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewSymbol<'n> {
    pub(super) start: u64,
    pub(super) end: u64,
    /// `st_info`'s binding.
    pub(super) binding: u8,
    /// `st_info`'s type.
    pub(super) kind: u8,
    pub(super) name: Name<'n>,
}

/// A name, and how to display it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Name<'n> {
    /// In no file; displayed as it is.
    Made(&'n [u8]),
    /// In a file; displayed as it is.
    Plain(NameRef),
    /// From a symbol table: may be mangled.
    Raw(NameRef),
    /// Name of the function that a stub calls, from a symbol table.
    Stub(NameRef),
}

/// How a name must be processed. Deferred, since few symbols of a file are ever displayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NameForm {
    Shown,
    Raw,
    Stub,
}

/// A symbol.
#[derive(Clone, Copy, Debug)]
struct Sym {
    start: u64,
    end: u64,
    name: NameRef,
    form: NameForm,
    binding: u8,
    kind: u8,
}

/// Whether perf finds the symbol at `address`, if it looks at it.
fn holds(symbol: &Sym, address: u64) -> bool {
    let Sym { start, end, .. } = *symbol;
    address >= start && (address < end || (address == end && address == start))
}

/// A symbol in the sorted list.
#[derive(Clone, Copy, Debug)]
struct Slot {
    start: u64,
    symbol: u32,
}

/// The symbols that are not in the sorted list yet.
#[derive(Clone, Copy, Debug)]
struct UnsortedSpan {
    /// The first start.
    low: u64,
    /// The last start.
    last: u64,
    /// No address from here on is in any of them.
    high: u64,
}

/// What happened to the symbols at a call of [`Tree::fix`].
#[derive(Debug)]
struct FixupRecord {
    /// The number of symbols inserted before.
    inserted: usize,
    /// The symbols that were removed, in this order.
    erased: Vec<u32>,
}

/// The symbols of an object.
#[derive(Debug)]
pub(super) struct Tree {
    symbols: Vec<Sym>,
    names: Names,
    /// By start; equal starts in the order of insertion.
    slots: Vec<Slot>,
    /// The highest end of the slots up to each.
    ends: Vec<u64>,
    /// The first symbol that is not in the slots.
    fresh: usize,
    late: Option<UnsortedSpan>,
    fixed: Vec<FixupRecord>,
    /// perf's tree, once it is needed.
    shape: Option<Shape>,
    /// Where the file has the names of symbols that are displayed otherwise.
    mangled: HashMap<u32, NameRef>,
    helper: &'static dyn Helper,
}

impl Tree {
    pub(super) fn new(helper: &'static dyn Helper) -> Tree {
        Tree::with_room(NAMES_MAX, helper)
    }

    /// Limits the bytes of names that are stored: those that are in no file, and displayed ones.
    /// All symbols of a file may share one long name, so the file's size does not bound them.
    /// Symbols beyond the limit have no names, or are displayed as they are in the file.
    pub(super) fn with_room(room: usize, helper: &'static dyn Helper) -> Tree {
        Tree {
            symbols: Vec::new(),
            names: Names::with_room(room),
            slots: Vec::new(),
            ends: Vec::new(),
            fresh: 0,
            late: None,
            fixed: Vec::new(),
            shape: None,
            mangled: HashMap::new(),
            helper,
        }
    }

    /// Adds a file whose bytes contain names, each up to a terminator; returns its number.
    pub(super) fn add_source(&mut self, bytes: &Owner, terminator: u8) -> Option<u8> {
        self.names.add_source(bytes.clone(), terminator)
    }

    /// Reserves memory for this many more symbols.
    pub(super) fn reserve(&mut self, symbols: usize) {
        self.symbols.reserve(symbols);
        self.slots.reserve(symbols);
    }

    /// Number of symbols, and bytes of their stored names.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.symbols.len(), self.names.stored())
    }

    /// Whether the tree has no symbols.
    pub(super) fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }

    /// The index of the symbol that perf finds at `address`.
    pub(super) fn find(&mut self, address: u64) -> Option<u32> {
        if self.shape.is_none() {
            match self.find_certain(address) {
                Some(found) => return found,
                None => self.shape = Some(self.build()),
            }
        }
        self.shape.as_ref()?.find(&self.symbols, address)
    }

    /// What perf finds at `address`, whatever the shape of its tree is. `None` if that depends on
    /// the shape.
    ///
    /// Of the symbols that start at or before the address, take the last one. On the way to it,
    /// perf turns left at each symbol that starts behind the address and right at each other one
    /// that does not contain the address. So it arrives, unless another one contains the address.
    fn find_certain(&self, address: u64) -> Option<Option<u32>> {
        let late = self.late.filter(|late| late.low <= address);
        if late.is_some_and(|late| address < late.high) {
            return None;
        }
        let after = self.slots.partition_point(|slot| slot.start <= address);
        let Some(last) = after.checked_sub(1) else {
            return Some(None);
        };
        let slot = self.slots[last];
        let has_rival = last.checked_sub(1).is_some_and(|before| {
            self.ends[before] > address || self.slots[before].start == address
        });
        if has_rival {
            return None;
        }
        if !holds(&self.symbols[slot.symbol as usize], address) {
            return Some(None);
        }
        // A late one may be the last one.
        let is_last = late.is_none_or(|late| late.last < slot.start);
        is_last.then_some(Some(slot.symbol))
    }

    /// perf's tree of the symbols so far.
    fn build(&self) -> Shape {
        let mut shape = Shape::with_capacity(self.symbols.len());
        let insert = |shape: &mut Shape, count: usize| {
            for symbol in &self.symbols[shape.len()..count] {
                shape.insert(symbol.start);
            }
        };
        for fixed in &self.fixed {
            insert(&mut shape, fixed.inserted);
            for &at in &fixed.erased {
                shape.erase(at);
            }
        }
        insert(&mut shape, self.symbols.len());
        shape
    }

    /// The addresses of the symbol with this index.
    pub(super) fn range(&self, at: u32) -> Range<u64> {
        let symbol = &self.symbols[at as usize];
        symbol.start..symbol.end
    }

    /// Sets the end of the symbol with this index.
    pub(super) fn set_end(&mut self, at: u32, end: u64) {
        let symbol = &mut self.symbols[at as usize];
        let grows = end > symbol.end;
        symbol.end = end;
        if at as usize >= self.fresh {
            self.late = self.late.map(|late| UnsortedSpan {
                high: late.high.max(end),
                ..late
            });
        } else if grows {
            self.measure();
        }
    }

    /// The name of the symbol with this index, as displayed by perf.
    pub(super) fn name(&mut self, at: u32) -> &[u8] {
        let symbol = &mut self.symbols[at as usize];
        if symbol.form != NameForm::Shown {
            let raw = self.names.get(symbol.name);
            // Only names with an underscore are ever mangled.
            if symbol.form == NameForm::Stub || raw.starts_with(b"_") {
                let mut shown = shown(raw, self.helper);
                if symbol.form == NameForm::Stub {
                    shown.extend_from_slice(b"@plt");
                }
                if shown != raw && symbol.form == NameForm::Raw {
                    self.mangled.insert(at, symbol.name);
                }
                symbol.name = self.names.show(&shown).unwrap_or(symbol.name);
            }
            symbol.form = NameForm::Shown;
        }
        self.names.get(symbol.name)
    }

    /// The name of the symbol with this index in the file, if it was displayed otherwise.
    pub(super) fn mangled(&mut self, at: u32) -> Option<&[u8]> {
        self.name(at);
        Some(self.names.get(*self.mangled.get(&at)?))
    }

    /// Inserts a symbol after those with the same start and returns its index.
    pub(super) fn insert(&mut self, entry: NewSymbol<'_>) -> u32 {
        let (form, name) = match entry.name {
            Name::Made(name) => (NameForm::Shown, self.names.make(name)),
            Name::Plain(at) => (NameForm::Shown, at),
            Name::Raw(at) => (NameForm::Raw, at),
            Name::Stub(at) => (NameForm::Stub, at),
        };

        let NewSymbol {
            start,
            end,
            binding,
            kind,
            ..
        } = entry;

        // The index is the age: of two symbols at one start, the older one comes first.
        let new = self.symbols.len() as u32;
        self.symbols.push(Sym {
            start,
            end,
            name,
            form,
            binding,
            kind,
        });

        // A symbol without a size holds its own start.
        let high = end.max(start.saturating_add(1));
        self.late = Some(match self.late {
            // The first one since the list was sorted.
            None => UnsortedSpan {
                low: start,
                last: start,
                high,
            },
            Some(late) => UnsortedSpan {
                low: late.low.min(start),
                last: late.last.max(start),
                high: late.high.max(high),
            },
        });

        if let Some(shape) = &mut self.shape {
            shape.insert(start);
        }
        new
    }

    /// Puts all symbols into the sorted list.
    fn sort(&mut self) {
        let fresh = self.fresh as u32..self.symbols.len() as u32;
        let slot = |symbol: u32| Slot {
            start: self.symbols[symbol as usize].start,
            symbol,
        };
        self.slots.extend(fresh.map(slot));
        self.slots.sort_by_key(|slot| slot.start);
        self.fresh = self.symbols.len();
        self.late = None;
    }

    /// Computes the highest ends.
    fn measure(&mut self) {
        let mut highest = 0;
        let ends = self.slots.iter().map(|slot| {
            highest = self.symbols[slot.symbol as usize].end.max(highest);
            highest
        });
        self.ends.clear();
        self.ends.extend(ends);
    }

    /// Prepares lookups, after the last insertion.
    pub(super) fn settle(&mut self) {
        if self.shape.is_none() && self.fresh < self.symbols.len() {
            self.sort();
            self.measure();
        }
    }

    /// Sets the ends of symbols without a size and removes duplicates.
    pub(super) fn fix(&mut self) {
        self.sort();
        self.shape = None;
        let mut slots = std::mem::take(&mut self.slots);

        // A symbol without a size ends at the next one; the last one ends a page behind its own
        // (`symbols__fixup_end` in `tools/perf/util/symbol.c`).
        for at in 0..slots.len() {
            let next = slots.get(at + 1).map(|next| next.start);
            let symbol = &mut self.symbols[slots[at].symbol as usize];
            if symbol.end == symbol.start {
                let rounded = || symbol.start.checked_next_multiple_of(PAGE);
                let page_on = || rounded().unwrap_or(u64::MAX).saturating_add(PAGE);
                symbol.end = next.unwrap_or_else(page_on);
            }
        }

        // Ends first: the choice between duplicates depends on their sizes.
        let mut erased = Vec::new();
        slots.dedup_by(|next, kept| {
            if kept.start != next.start {
                return false;
            }
            if self.is_better(kept.symbol, next.symbol) {
                erased.push(next.symbol);
            } else {
                erased.push(kept.symbol);
                *kept = *next;
            }
            true
        });

        self.slots = slots;
        self.measure();
        self.fixed.push(FixupRecord {
            inserted: self.symbols.len(),
            erased,
        });
    }

    /// Whether `a` is kept if `a` and its successor `b` start at the same address
    /// (`choose_best_symbol`).
    fn is_better(&mut self, a: u32, b: u32) -> bool {
        let size = |at: u32| {
            let range = self.range(at);
            range.end.wrapping_sub(range.start)
        };

        // A symbol with a size is better than one without.
        match (size(a), size(b)) {
            (1.., 0) => return true,
            (0, 1..) => return false,
            _ => {}
        }

        // Then one with a type, then one that is not weak, then a global one.
        let (one, other) = (&self.symbols[a as usize], &self.symbols[b as usize]);
        if one.kind != other.kind {
            if one.kind == NOTYPE {
                return false;
            }
            if other.kind == NOTYPE {
                return true;
            }
        }

        if (one.binding == WEAK) != (other.binding == WEAK) {
            return other.binding == WEAK;
        }
        if (one.binding == GLOBAL) != (other.binding == GLOBAL) {
            return one.binding == GLOBAL;
        }

        // Usually the same symbol in two tables: then nothing needs demangling.
        let (name, form) = (self.names.get(one.name), one.form);
        if form != other.form || !self.names.is(other.name, name) {
            // Fewer underscores, and then a longer name, are better.
            let underscores = |name: &[u8]| name.iter().take_while(|&&c| c == b'_').count();
            let rank = |name: &[u8]| (std::cmp::Reverse(underscores(name)), name.len());
            let (a, b) = (rank(self.name(a)), rank(self.name(b)));
            if a != b {
                return a > b;
            }
        } else if form == NameForm::Raw && name.starts_with(b"_") && !has_marker(name) {
            return true;
        }

        // Aliases of the kernel's system calls, which perf avoids.
        let name = self.name(a);
        !name.starts_with(b"SyS") && !name.starts_with(b"compat_SyS")
    }
}

/// Whether a name contains `SyS`; one that does not, does not start with it when demangled.
fn has_marker(name: &[u8]) -> bool {
    memchr::memchr_iter(b'y', name).any(|at| {
        let around = at.checked_sub(1).and_then(|start| name.get(start..at + 2));
        around == Some(b"SyS")
    })
}

/// A name from a symbol table, as displayed by perf.
fn shown(raw: &[u8], helper: &dyn Helper) -> Vec<u8> {
    let raw = &raw[..raw.len().min(NAME_MAX)];
    match std::str::from_utf8(raw) {
        Ok(text) => helper.demangle(text).into_bytes(),
        Err(_) => raw.to_vec(),
    }
}

#[cfg(test)]
mod tests;
