//! Names for the addresses of a file, asked for in ascending order.

use std::fmt::Write as _;
use std::ops::Range;
use unwind_sim_recordings::names::demangle;
use unwind_sim_tables::file::File;
use unwind_sim_unwind::printable::Printable;

/// The symbols of a file; remembers the last one.
pub(crate) struct Names<'a> {
    file: &'a File,
    name: Option<String>,
    /// The addresses (svma) for which `name` is right.
    range: Range<u64>,
    start: u64,
}

impl<'a> Names<'a> {
    pub(crate) fn new(file: &'a File) -> Self {
        Names {
            file,
            name: None,
            range: 0..0,
            start: 0,
        }
    }

    /// The function that has `address` (svma), and its start.
    pub(crate) fn function(&mut self, address: u64) -> Option<(&str, u64)> {
        if !self.range.contains(&address) {
            self.find(address);
        }
        self.name.as_deref().map(|name| (name, self.start))
    }

    fn find(&mut self, address: u64) {
        let image = self.file.image();
        let symbols = image.symbols();
        // The next symbol may start a function inside this one.
        let next = symbols.partition_point(|s| s.address <= address);
        let next = symbols.get(next).map_or(u64::MAX, |s| s.address);
        let found = image.symbol(address);
        self.range = address..next;
        self.name = found.map(|symbol| demangle(&symbol.name).to_string());
        self.start = found.map_or(0, |symbol| symbol.address);
        if let Some(symbol) = found.filter(|s| s.size > 0) {
            let end = symbol.address.saturating_add(symbol.size);
            self.range.end = end.min(next);
        }
    }

    /// `main+0x4`; the address alone if it belongs to no function.
    ///
    /// For a person: what is not printable is escaped.
    pub(crate) fn place(&mut self, address: u64, out: &mut String) {
        let _ = match self.function(address) {
            Some((name, start)) if address == start => write!(out, "{}", Printable::new(name)),
            Some((name, start)) => write!(out, "{}+{:#x}", Printable::new(name), address - start),
            None => out.write_str("?"),
        };
    }
}

/// An address as people see it: `0x401000`, or `.text+0x10` in a relocatable object.
pub(crate) fn address(file: &File, address: u64, out: &mut String) {
    let _ = match file.place(address) {
        Some((section, offset)) => write!(out, "{section}+{offset:#x}"),
        None => write!(out, "{address:#x}"),
    };
}
