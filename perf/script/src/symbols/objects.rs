//! Symbols and source lines of mapped objects. Files are accessed through [`Symbols`].

use std::ops::Range;
use unwind_sim_perf_data::Object;

/// A symbol, at an address of its object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its addresses.
    pub range: Range<u64>,
}

/// The source line of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SourceLine<'a> {
    /// A known line.
    Line {
        /// The source file's name, without its folder.
        file: &'a [u8],
        /// The line number; 0 for code without a line.
        line: u32,
    },
    /// The file has lines, but none for this address.
    Unknown,
    /// The file is missing or has no lines.
    NoLines {
        /// The address in the file's address space; the file offset if the file is missing.
        address: u64,
    },
}

/// A source of symbols.
pub trait Symbols {
    /// The symbol at an address of an object. Called once for each address and object.
    fn symbol(&mut self, object: &Object<'_>, address: u64) -> Option<Symbol<'_>>;

    /// The name of the symbol at an address as the file has it, if it is mangled.
    fn mangled(&mut self, object: &Object<'_>, address: u64) -> Option<&[u8]> {
        let _ = (object, address);
        None
    }

    /// The build ID of a file that the recording has none of, in the file itself.
    fn build_id(&mut self, object: &Object<'_>) -> Option<Vec<u8>> {
        let _ = object;
        None
    }

    /// The functions at an address of an object, demangled: the innermost first, and the one that
    /// the others were inlined into last. Empty if that is not known.
    fn inlined(&mut self, object: &Object<'_>, address: u64) -> &[Vec<u8>] {
        let _ = (object, address);
        &[]
    }

    /// The source line of an address in an object.
    fn source_line(&mut self, object: &Object<'_>, address: u64) -> SourceLine<'_> {
        let _ = object;
        SourceLine::NoLines { address }
    }

    /// The range from the start of the first to the end of the last symbol of the kernel itself;
    /// `None` without symbols.
    fn kernel_range(&mut self) -> Option<Range<u64>> {
        None
    }
}

/// A source without any symbols.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSymbols;

impl Symbols for NoSymbols {
    fn symbol(&mut self, _: &Object<'_>, _: u64) -> Option<Symbol<'_>> {
        None
    }
}
