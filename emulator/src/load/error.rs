//! Why a program cannot be loaded.

use crate::address_space::{Fault, MapError};

/// The file concerned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ElfFile {
    /// The program.
    Program,
    /// Its interpreter (the dynamic linker).
    Interpreter,
}

impl ElfFile {
    const fn name(self) -> &'static str {
        match self {
            ElfFile::Program => "program",
            ElfFile::Interpreter => "interpreter",
        }
    }
}

/// Why a program cannot be loaded: always malformed input.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}: {section} at offset {offset:#x}: {what}", .which.name())]
#[non_exhaustive]
pub struct LoadError {
    /// The file.
    pub which: ElfFile,
    /// What is wrong.
    pub what: LoadErrorKind,
    /// The header or part of the file.
    pub section: &'static str,
    /// Offset in the file, bytes.
    pub offset: u64,
}

/// The kinds of [`LoadError`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadErrorKind {
    /// Not an ELF file, or its header cannot be read.
    #[error("not an ELF file")]
    NotElf,
    /// Not a 64-bit little-endian file for x86-64.
    #[error("not a file for x86-64")]
    NotX86_64,
    /// Neither `ET_EXEC` nor `ET_DYN`.
    #[error("ELF type {0} is neither a program (2) nor a shared object (3)")]
    Type(u16),
    /// The program headers are not in the file, too many, or of another size.
    #[error("not within the file, too many, or of the wrong size")]
    ProgramHeaders,
    /// No `PT_LOAD` with any memory.
    #[error("no segment to load")]
    NothingToLoad,
    /// `p_filesz` is larger than `p_memsz`, or the addresses wrap.
    #[error("larger in the file than in memory, or its addresses wrap")]
    Segment,
    /// Offset and address of a segment differ within a page.
    #[error("its offset and address differ within a page of 4096 bytes")]
    Misaligned,
    /// `PT_INTERP` is not a path.
    #[error("not a path of at most 4096 bytes")]
    InterpreterPath,
    /// The program needs an interpreter, and none was given.
    #[error("the program needs an interpreter; give its file")]
    NoInterpreter,
    /// A segment, or the stack, cannot be mapped.
    #[error(transparent)]
    Map(MapError),
    /// Something is already mapped where the segments go.
    #[error("{0:#x} is already mapped, but a segment needs it")]
    Overlap(u64),
    /// No free range of addresses is large enough.
    #[error("no free range of {0} bytes of addresses")]
    NoRoom(u64),
    /// The memory cannot be written.
    #[error(transparent)]
    Fault(Fault),
    /// Arguments and environment need more than a quarter of the stack.
    #[error("arguments and environment of {0} bytes need more than a quarter of the stack")]
    Arguments(u64),
}
