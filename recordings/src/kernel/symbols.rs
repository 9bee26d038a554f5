//! A kernel's symbols, of code and data, from kallsyms or System.map.

use super::error::KernelErrorKind;
use std::ops::Range;
use unwind_sim_unwind::image::Symbol;

/// The source of the symbols.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SymbolSource {
    /// The kallsyms table in the image's `.rodata`.
    Kallsyms,
    /// The given System.map file.
    SystemMap,
    /// The section `.symtab`.
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
    /// Its address in the image (SVMA); for a per-CPU symbol, an offset.
    pub address: u64,
    /// Its type, as printed by nm: `t` and `T` are code, upper case is global.
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

/// A kernel's symbols, in table order.
#[derive(Clone, Debug, Default)]
pub struct KernelSymbols {
    rows: Vec<Row>,
    names: String,
}

impl KernelSymbols {
    /// An empty table with the given capacity.
    pub(super) fn with_capacity(count: usize, name_bytes: usize) -> Self {
        KernelSymbols {
            rows: Vec::with_capacity(count),
            names: String::with_capacity(name_bytes),
        }
    }

    /// Adds a symbol; false if the table is full (4 GiB of names).
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

    /// Parses a System.map: lines `ADDRESS TYPE NAME`.
    ///
    /// # Errors
    /// With the number of the first malformed line.
    pub fn from_map(bytes: &[u8]) -> Result<KernelSymbols, KernelErrorKind> {
        super::system_map::read(bytes)
    }

    /// Number of symbols.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Are there no symbols?
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// All symbols; sorted by address if they come from kallsyms or System.map.
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

    /// The address (SVMA) of the first symbol with this name.
    pub fn address(&self, name: &str) -> Option<u64> {
        self.iter().find(|s| s.name == name).map(|s| s.address)
    }

    /// The address range between two symbols, if both exist in this order.
    pub fn range(&self, start: &str, end: &str) -> Option<Range<u64>> {
        let range = self.address(start)?..self.address(end)?;
        (range.start < range.end).then_some(range)
    }

    /// The code symbols, for an image with these text ranges. A symbol ends at the next address
    /// that has a symbol, as in the kernel's own lookup (`get_symbol_pos`, `kernel/kallsyms.c`).
    pub(super) fn code(&self, text: &[Range<u64>]) -> Vec<Symbol> {
        let mut addresses: Vec<u64> = self.rows.iter().map(|r| r.address).collect();
        if !addresses.is_sorted() {
            addresses.sort_unstable();
        }
        let mut next = 0;
        let mut size = |address: u64| {
            // In a sorted list, nearly always the next entry.
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
