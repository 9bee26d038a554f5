//! Why a program cannot be loaded.

use crate::address_space::{Fault, MapError};
use std::fmt;

/// The file concerned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Which {
    /// The program.
    Program,
    /// Its interpreter (the dynamic linker).
    Interpreter,
}

/// Why a program cannot be loaded: always malformed input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LoadError {
    /// The file.
    pub which: Which,
    /// What is wrong.
    pub what: LoadErrorKind,
    /// The header or part of the file.
    pub section: &'static str,
    /// Offset in the file, bytes.
    pub offset: u64,
}

/// The kinds of [`LoadError`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LoadErrorKind {
    /// Not an ELF file, or its header cannot be read.
    NotElf,
    /// Not a 64-bit little-endian file for x86-64.
    NotX86_64,
    /// Neither `ET_EXEC` nor `ET_DYN`.
    Type(u16),
    /// The program headers are not in the file, too many, or of another size.
    ProgramHeaders,
    /// No `PT_LOAD` with any memory.
    NothingToLoad,
    /// `p_filesz` is larger than `p_memsz`, or the addresses wrap.
    Segment,
    /// Offset and address of a segment differ within a page.
    Misaligned,
    /// `PT_INTERP` is not a path.
    InterpreterPath,
    /// The program needs an interpreter, and none was given.
    NoInterpreter,
    /// A segment, or the stack, cannot be mapped.
    Map(MapError),
    /// Something is already mapped where the segments go.
    Overlap(u64),
    /// No free range of addresses is large enough.
    NoRoom(u64),
    /// The memory cannot be written.
    Fault(Fault),
    /// Arguments and environment need more than a quarter of the stack.
    Arguments(u64),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let which = match self.which {
            Which::Program => "program",
            Which::Interpreter => "interpreter",
        };
        write!(
            f,
            "{which}: {} at offset {:#x}: ",
            self.section, self.offset
        )?;
        match self.what {
            LoadErrorKind::NotElf => write!(f, "not an ELF file"),
            LoadErrorKind::NotX86_64 => write!(f, "not a file for x86-64"),
            LoadErrorKind::Type(kind) => {
                write!(
                    f,
                    "ELF type {kind} is neither a program (2) nor a shared object (3)"
                )
            }
            LoadErrorKind::ProgramHeaders => {
                write!(
                    f,
                    "they do not lie inside the file, are too many, or of another size"
                )
            }
            LoadErrorKind::NothingToLoad => write!(f, "no segment to load"),
            LoadErrorKind::Segment => write!(f, "more bytes in the file than in memory, or wraps"),
            LoadErrorKind::Misaligned => {
                write!(
                    f,
                    "its offset and address differ within a page of 4096 bytes"
                )
            }
            LoadErrorKind::InterpreterPath => write!(f, "not a path of at most 4096 bytes"),
            LoadErrorKind::NoInterpreter => write!(f, "it needs an interpreter; give its file"),
            LoadErrorKind::Map(error) => write!(f, "{error}"),
            LoadErrorKind::Overlap(address) => {
                write!(f, "{address:#x} is already mapped, where a segment goes")
            }
            LoadErrorKind::NoRoom(size) => write!(f, "no {size} bytes of addresses are free"),
            LoadErrorKind::Fault(fault) => write!(f, "{fault}"),
            LoadErrorKind::Arguments(size) => write!(
                f,
                "arguments and environment of {size} bytes need more than a quarter of the stack"
            ),
        }
    }
}

impl std::error::Error for LoadError {}
