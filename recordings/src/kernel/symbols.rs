//! A kernel's symbols of every kind, as kallsyms and System.map have them.

use super::error::KernelErrorKind;
use std::ops::Range;
use unwind_sim_unwind::image::Symbol;

/// Where the symbols come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SymbolSource {
    /// The kallsyms table in the image's `.rodata`.
    Kallsyms,
    /// The file given as System.map.
    SystemMap,
    /// `.symtab`
    Symtab,
}

impl SymbolSource {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            SymbolSource::Kallsyms => "kallsyms",
            SymbolSource::SystemMap => "System.map",
            SymbolSource::Symtab => ".symtab",
        }
    }
}

/// One symbol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelSymbol<'a> {
    /// Its stated address (svma); an offset for one of a per-CPU section.
    pub address: u64,
    /// Its type, as nm prints it: `t` and `T` are code, capitals are global.
    pub kind: u8,
    /// Its name.
    pub name: &'a str,
}

impl KernelSymbol<'_> {
    /// Is it code?
    pub const fn is_code(&self) -> bool {
        matches!(self.kind, b't' | b'T' | b'w' | b'W')
    }
}

#[derive(Clone, Copy, Debug)]
struct Row {
    address: u64,
    kind: u8,
    name_end: u32,
}

/// A kernel's symbols, in the order of their table.
#[derive(Clone, Debug, Default)]
pub struct KernelSymbols {
    rows: Vec<Row>,
    names: String,
}

impl KernelSymbols {
    /// None yet, with room for so many.
    pub(super) fn with_capacity(count: usize, name_bytes: usize) -> Self {
        KernelSymbols {
            rows: Vec::with_capacity(count),
            names: String::with_capacity(name_bytes),
        }
    }

    /// Adds one; false if there is no more room (4 GiB of names).
    pub(super) fn push(&mut self, address: u64, kind: u8, name: &str) -> bool {
        self.names.push_str(name);
        let Ok(name_end) = u32::try_from(self.names.len()) else {
            return false;
        };
        self.rows.push(Row {
            address,
            kind,
            name_end,
        });
        true
    }

    /// Those of a System.map: lines `ADDRESS TYPE NAME`.
    ///
    /// # Errors
    /// With the number of the first line that is not of that form.
    pub fn from_map(bytes: &[u8]) -> Result<KernelSymbols, KernelErrorKind> {
        super::system_map::read(bytes)
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// All symbols, in order of address if they come from kallsyms or System.map.
    pub fn iter(&self) -> impl Iterator<Item = KernelSymbol<'_>> {
        let mut start = 0;
        self.rows.iter().map(move |row| {
            let name = &self.names[start..row.name_end as usize];
            start = row.name_end as usize;
            KernelSymbol {
                address: row.address,
                kind: row.kind,
                name,
            }
        })
    }

    /// The address (svma) of the first symbol of that name.
    pub fn address(&self, name: &str) -> Option<u64> {
        self.iter().find(|s| s.name == name).map(|s| s.address)
    }

    /// The addresses between two symbols, if both are there and in this order.
    pub fn range(&self, start: &str, end: &str) -> Option<Range<u64>> {
        let range = self.address(start)?..self.address(end)?;
        (range.start < range.end).then_some(range)
    }

    /// The symbols of code, for an image with these text ranges. A symbol ends where the next
    /// address with a symbol begins, as in the kernel's own lookup (`get_symbol_pos`,
    /// `kernel/kallsyms.c`).
    pub(super) fn code(&self, text: &[Range<u64>]) -> Vec<Symbol> {
        let mut addresses: Vec<u64> = self.rows.iter().map(|r| r.address).collect();
        if !addresses.is_sorted() {
            addresses.sort_unstable();
        }
        let mut next = 0;
        let mut size = |address: u64| {
            // Nearly always the next one of a sorted list.
            while addresses.get(next).is_some_and(|a| *a <= address) {
                next += 1;
            }
            let range = text.iter().find(|r| r.contains(&address))?;
            let end = addresses.get(next).map_or(range.end, |a| range.end.min(*a));
            Some(end - address)
        };
        let mut code: Vec<_> = self.iter().filter(KernelSymbol::is_code).collect();
        if !code.is_sorted_by_key(|s| s.address) {
            code.sort_by_key(|s| s.address);
        }
        let image = code.iter().map(|s| Symbol {
            address: s.address,
            size: size(s.address).unwrap_or(0),
            name: s.name.to_owned(),
        });
        image.collect()
    }
}
