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
    /// Bytes of `names` before each name: 1 for its type, in names unpacked from kallsyms.
    lead: usize,
}

impl KernelSymbols {
    /// An empty table with the given capacity.
    pub(super) fn with_capacity(count: usize, name_bytes: usize) -> Self {
        KernelSymbols {
            rows: Vec::with_capacity(count),
            names: String::with_capacity(name_bytes),
            lead: 0,
        }
    }

    /// The symbols with these addresses. `names` has each one's type, a letter, followed by its
    /// name, which ends at the next of `ends`.
    ///
    /// `None` if a name is empty, or the names are longer than 4 GiB.
    pub(super) fn with_types(names: String, ends: &[usize], addresses: &[u64]) -> Option<Self> {
        let mut rows = Vec::with_capacity(addresses.len());
        let mut start = 0;
        for (&address, &end) in addresses.iter().zip(ends) {
            let letter = names.as_bytes().get(start..end)?.first();
            rows.push(Row {
                address,
                kind: *letter?,
                name_end: u32::try_from(end).ok()?,
            });
            start = end;
        }
        Some(KernelSymbols {
            rows,
            names,
            lead: 1,
        })
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
            let name = &self.names[start + self.lead..row.name_end as usize];
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
        let [address] = self.addresses([name]);
        address
    }

    /// [`KernelSymbols::address`] of several names, in one pass.
    pub fn addresses<const N: usize>(&self, names: [&str; N]) -> [Option<u64>; N] {
        let mut found = [None; N];
        // Bit n: a name of n bytes is wanted. Nearly all others are passed by their lengths.
        let bit = |len: usize| 1_u128 << len.min(127);
        let lengths = names.iter().fold(0, |all, name| all | bit(name.len()));

        let (text, mut start, mut left) = (self.names.as_bytes(), 0, N);
        for row in &self.rows {
            let end = row.name_end as usize;
            // In names from kallsyms, the type stands before each name.
            start += self.lead;
            let len = end - start;
            if lengths & bit(len) != 0 {
                let here = &text[start..end];
                let wanted = names.iter().zip(&mut found);
                for (_, found) in wanted.filter(|(n, f)| f.is_none() && n.as_bytes() == here) {
                    *found = Some(row.address);
                    left -= 1;
                }
                if left == 0 {
                    break;
                }
            }
            start = end;
        }

        found
    }

    /// The address range between two symbols, if both exist in this order.
    pub fn range(&self, start: &str, end: &str) -> Option<Range<u64>> {
        let [start, end] = self.addresses([start, end]);
        let range = start?..end?;
        (range.start < range.end).then_some(range)
    }

    /// The code symbols, for an image with these text ranges. A symbol ends at the next address
    /// that has a symbol, as in the kernel's own lookup (`get_symbol_pos`, `kernel/kallsyms.c`).
    pub(super) fn code(&self, text: &[Range<u64>]) -> Vec<Symbol> {
        let sorted = self.rows.is_sorted_by_key(|r| r.address);
        let mut addresses = Vec::new();
        if !sorted {
            addresses.extend(self.rows.iter().map(|r| r.address));
            addresses.sort_unstable();
        }

        let address_at = |i: usize| {
            if sorted {
                self.rows.get(i).map(|r| r.address)
            } else {
                addresses.get(i).copied()
            }
        };

        let code = || self.iter().filter(KernelSymbol::is_code);
        let mut out = Vec::with_capacity(code().count());
        out.extend(code().map(|s| Symbol {
            address: s.address,
            // Neither kallsyms nor System.map has sizes.
            size: 0,
            name: s.name.to_owned(),
        }));

        if !sorted {
            out.sort_by_key(|s| s.address);
        }

        // Both are in the order of addresses, so one pass is enough.
        let mut next = 0;
        for symbol in &mut out {
            while address_at(next).is_some_and(|a| a <= symbol.address) {
                next += 1;
            }
            if let Some(range) = text.iter().find(|r| r.contains(&symbol.address)) {
                let end = address_at(next).map_or(range.end, |a| range.end.min(a));
                symbol.size = end - symbol.address;
            }
        }

        out
    }
}
