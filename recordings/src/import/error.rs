//! Why a recording cannot be imported.

use super::capture::Problem;
use super::vmcore::Problem as VmcoreProblem;
use crate::kernel::KernelError;
use std::fmt;
use std::io;
use unwind_sim_perf_data::PerfError;

/// Why a file, or the rest of it, cannot be imported.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ImportError {
    /// The file cannot be opened or mapped.
    Io(io::ErrorKind),
    /// The format is unknown.
    UnknownFormat,
    /// A perf.data that cannot be read.
    Perf(PerfError),
    /// A perf.data of another architecture (`HEADER_ARCH`).
    PerfArch,
    /// A kernel capture that cannot be read.
    Capture(Problem),
    /// The kernel image cannot be read.
    Kernel(KernelError),
    /// A dump of a machine, or a part of it, cannot be imported.
    Vmcore(VmcoreProblem),
    /// An ELF core that cannot be read.
    Core {
        /// What is wrong.
        what: CoreErrorKind,
        /// The header or note in question.
        section: &'static str,
        /// Offset in the file, bytes.
        offset: u64,
    },
}

/// What is wrong with an ELF core, with the offending value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CoreErrorKind {
    /// A 32-bit core, or an unknown class.
    Class(u8),
    /// A big-endian core.
    BigEndian,
    /// A core of another machine.
    Machine(u16),
    /// An ELF file that is not a core.
    Type(u16),
    /// Something lies outside the file.
    OutOfFile {
        /// Size of the file, bytes.
        file: u64,
    },
    /// A note does not fit into its segment.
    Note,
    /// A note is too short.
    Short {
        /// Bytes needed.
        need: u64,
        /// Bytes available.
        have: u64,
    },
    /// There is no `NT_PRSTATUS`, and thus no thread.
    NoThread,
}

impl fmt::Display for CoreErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Class(1) => write!(f, "a 32-bit core; only x86-64 is supported"),
            Self::Class(class) => write!(f, "unknown ELF class {class}"),
            Self::BigEndian => write!(f, "a big-endian core; only x86-64 is supported"),
            Self::Machine(machine) => {
                write!(
                    f,
                    "a core of machine {machine}; only x86-64 (62) is supported"
                )
            }
            Self::Type(kind) => write!(
                f,
                "ELF type {kind} is not a core (4); give perf.data or a core, not a program"
            ),
            Self::OutOfFile { file } => {
                write!(
                    f,
                    "does not lie inside the file of {file} bytes; was it cut short?"
                )
            }
            Self::Note => write!(f, "a note does not fit into its segment"),
            Self::Short { need, have } => write!(f, "needs {need} bytes, has {have}"),
            Self::NoThread => write!(f, "no thread (NT_PRSTATUS) in the core"),
        }
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(kind) => write!(f, "cannot be read: {kind}"),
            Self::UnknownFormat => write!(f, "neither perf.data, an ELF core nor a capture"),
            Self::Perf(error) => write!(f, "{error}"),
            Self::Capture(problem) => write!(f, "{problem}"),
            Self::Kernel(error) => write!(f, "{error}"),
            Self::Vmcore(problem) => write!(f, "vmcore: {problem}"),
            Self::PerfArch => write!(
                f,
                "perf.data: HEADER_ARCH: recorded on another machine; only x86_64 is supported"
            ),
            Self::Core {
                what,
                section,
                offset,
            } => write!(f, "core: {section} at offset {offset:#x}: {what}"),
        }
    }
}

impl std::error::Error for ImportError {}

impl From<Problem> for ImportError {
    fn from(problem: Problem) -> Self {
        ImportError::Capture(problem)
    }
}

impl From<VmcoreProblem> for ImportError {
    fn from(problem: VmcoreProblem) -> Self {
        ImportError::Vmcore(problem)
    }
}

impl From<KernelError> for ImportError {
    fn from(error: KernelError) -> Self {
        ImportError::Kernel(error)
    }
}
