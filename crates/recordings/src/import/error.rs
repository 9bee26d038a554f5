//! Why a recording cannot be imported.

use super::capture::Problem;
use super::vmcore::Problem as VmcoreProblem;
use crate::gdb_jit;
use crate::kernel::KernelError;
use std::io;
use unwind_sim_perf_data::PerfError;

/// Why a file, or the rest of it, cannot be imported.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file cannot be opened or mapped.
    #[error("cannot be read: {0}")]
    Io(io::ErrorKind),
    /// The format is unknown.
    #[error("neither perf.data, an ELF core nor a capture")]
    UnknownFormat,
    /// A perf.data that cannot be read.
    #[error(transparent)]
    Perf(PerfError),
    /// A perf.data of another architecture (`HEADER_ARCH`).
    #[error("perf.data: HEADER_ARCH: recorded on another machine; only x86_64 is supported")]
    PerfArch,
    /// A kernel capture that cannot be read.
    #[error(transparent)]
    Capture(#[from] Problem),
    /// The kernel image cannot be read.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A dump of a machine, or a part of it, cannot be imported.
    #[error("vmcore: {0}")]
    Vmcore(#[from] VmcoreProblem),
    /// What a program registered for gdb cannot be read.
    #[error("core: {0}")]
    GdbJit(#[from] gdb_jit::Problem),
    /// An ELF core that cannot be read.
    #[error("core: {section} at offset {offset:#x}: {what}")]
    Core {
        /// What is wrong.
        what: CoreErrorKind,
        /// The header or note in question.
        section: &'static str,
        /// Offset in the file, bytes.
        offset: u64,
    },
}

impl ImportError {
    /// Whether bytes are missing at the end of a file that was otherwise right.
    pub fn is_cut(&self) -> bool {
        match self {
            ImportError::Perf(error) => error.kind.is_cut(),
            ImportError::Core { what, .. } => matches!(
                what,
                CoreErrorKind::Cut { .. } | CoreErrorKind::OutOfFile { .. }
            ),
            _ => false,
        }
    }

    /// Whether a core has no list of the mapped files.
    pub const fn lacks_file_list(&self) -> bool {
        matches!(
            self,
            ImportError::Core {
                what: CoreErrorKind::NoFiles { .. },
                ..
            }
        )
    }
}

/// What is wrong with an ELF core, with the offending value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CoreErrorKind {
    /// A 32-bit core, or an unknown class.
    #[error("ELF class {0}, not 64-bit (2); only x86-64 is supported")]
    Class(u8),
    /// A big-endian core.
    #[error("a big-endian core; only x86-64 is supported")]
    BigEndian,
    /// A core of another machine.
    #[error("a core of machine {0}; only x86-64 (62) is supported")]
    Machine(u16),
    /// An ELF file that is not a core.
    #[error("ELF type {0} is not a core (4); give perf.data or a core, not a program")]
    Type(u16),
    /// Something lies outside the file.
    #[error("lies outside the file of {file} bytes; was the file truncated?")]
    OutOfFile {
        /// Size of the file, bytes.
        file: u64,
    },
    /// The file ends before the last byte that the headers list.
    #[error(
        "{missing} bytes from here on lie outside the file of {file} bytes; was the file truncated?"
    )]
    Cut {
        /// Number of bytes outside the file.
        missing: u64,
        /// Size of the file, bytes.
        file: u64,
    },
    /// A note does not fit into its segment.
    #[error("a note does not fit into its segment")]
    Note,
    /// A note is too short.
    #[error("needs {need} bytes, has {have}")]
    Short {
        /// Bytes needed.
        need: u64,
        /// Bytes available.
        have: u64,
    },
    /// There is no `NT_FILE`. The images were found otherwise.
    #[error(
        "no NT_FILE note, which lists the mapped files; {by_header} were found by ELF headers in \
         memory, {by_name} by the dynamic linker's list"
    )]
    NoFiles {
        /// Number of images found by their headers.
        by_header: usize,
        /// Number of images found by their names only.
        by_name: usize,
    },
    /// `NT_FILE` states offsets that no file has. They were taken as bytes.
    #[error(
        "a file offset of {offset:#x} pages is impossible, like all others that are not 0; they were \
         taken as bytes"
    )]
    FileOffset {
        /// The first such offset, in pages.
        offset: u64,
    },
    /// There is no `NT_PRSTATUS`, and thus no thread.
    #[error("no thread (NT_PRSTATUS) in the core")]
    NoThread,
}
