//! What lies behind a mapping: objects with names and symbols. The files are somebody else's
//! business, through [`Symbols`].

use super::lines::SourceLine;
use std::ops::Range;

/// Which part of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KernelPart<'a> {
    /// The kernel itself.
    Core,
    /// A module, by its name.
    Module(&'a [u8]),
}

/// What was mapped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Object<'a> {
    /// The kernel or a module; addresses are those of the kernel.
    Kernel(KernelPart<'a>),
    /// A file; addresses are offsets in it.
    File {
        /// Its path.
        path: &'a [u8],
        /// Its build id, if known.
        build_id: &'a [u8],
    },
    /// Memory without a file, with code that somebody generated; addresses are the process's.
    Anonymous {
        /// `/tmp/perf-PID.map`, or what the kernel calls it.
        path: &'a [u8],
    },
    /// A piece of code that the kernel generated, such as a BPF program; addresses are offsets in
    /// it.
    Generated {
        /// Its name.
        name: &'a [u8],
        /// Its bytes.
        length: u64,
    },
}

/// A symbol, in its object's addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Where it lies.
    pub range: Range<u64>,
}

/// Where symbols come from.
pub trait Symbols {
    /// The symbol at an address of an object. Asked once for each address and object.
    fn symbol(&mut self, object: &Object<'_>, address: u64) -> Option<Symbol<'_>>;

    /// The line of the source that an address of an object belongs to.
    fn source_line(&mut self, object: &Object<'_>, address: u64) -> SourceLine<'_> {
        let _ = object;
        SourceLine::NoLines { address }
    }

    /// From the first symbol of the kernel itself to the end of the last; `None` without symbols.
    fn kernel_range(&mut self) -> Option<Range<u64>> {
        None
    }
}

/// No symbols at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSymbols;

impl Symbols for NoSymbols {
    fn symbol(&mut self, _: &Object<'_>, _: u64) -> Option<Symbol<'_>> {
        None
    }
}
