//! What can be wrong with a file that was looked for.

use std::fmt;
use std::io;
use unwind_sim_unwind::elf::ElfError;

/// Why a file was not used, or not all of it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FileProblem {
    /// The file, or the kernel's name of the mapping.
    pub path: String,
    /// What is wrong.
    pub kind: FileProblemKind,
}

/// The kinds of [`FileProblem`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FileProblemKind {
    /// The file is nowhere.
    NotFound,
    /// It cannot be opened or mapped.
    Io(io::ErrorKind),
    /// It is not the ELF file it should be, or a part of it is bad.
    Elf(ElfError),
    /// It is another build; it was not used.
    BuildId {
        /// What the recording says.
        expected: Vec<u8>,
        /// What the file says; empty if nothing.
        found: Vec<u8>,
    },
    /// The debug file that `.gnu_debuglink` names is of another build; it was not used.
    Crc {
        /// What the program says.
        expected: u32,
        /// What the file gives.
        found: u32,
    },
    /// A compressed part cannot be unpacked.
    Unpack {
        /// The section.
        section: &'static str,
        /// Offset in the file, bytes.
        offset: u64,
        /// What the decompressor said.
        why: io::ErrorKind,
    },
    /// A compressed part is larger than the limit when unpacked.
    UnpackLimit {
        /// The section.
        section: &'static str,
        /// The limit, bytes.
        limit: u64,
    },
    /// No segment of the file lies where the mapping says.
    NoSegment {
        /// The offset in the file, bytes.
        offset: u64,
    },
    /// A line of a `perf-PID.map` is not `START SIZE NAME`.
    JitLine {
        /// The number of the line, from 1.
        line: u64,
    },
    /// A `perf-PID.map` has more lines than are taken.
    JitLimit {
        /// The limit.
        limit: u64,
    },
}

impl FileProblemKind {
    pub(super) fn from_io(error: io::Error) -> FileProblemKind {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => FileProblemKind::NotFound,
            kind => FileProblemKind::Io(kind),
        }
    }

    /// A stable name, for counting.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::NotFound => "not-found",
            Self::Io(_) => "io",
            Self::Elf(_) => "elf",
            Self::BuildId { .. } => "build-id-mismatch",
            Self::Crc { .. } => "crc-mismatch",
            Self::Unpack { .. } => "unpack",
            Self::UnpackLimit { .. } => "unpack-limit",
            Self::NoSegment { .. } => "no-segment",
            Self::JitLine { .. } => "jit-line",
            Self::JitLimit { .. } => "jit-limit",
        }
    }
}

/// Bytes as hexadecimal digits.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for FileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path)?;
        match &self.kind {
            FileProblemKind::NotFound => {
                write!(f, "not found; give the directory that holds it as --symfs")
            }
            FileProblemKind::Io(kind) => write!(f, "cannot be read: {kind}"),
            FileProblemKind::Elf(error) => write!(f, "{error}"),
            FileProblemKind::BuildId { expected, found } => write!(
                f,
                "not used: build id {}, but {} was recorded",
                Hex(found),
                Hex(expected)
            ),
            FileProblemKind::Crc { expected, found } => write!(
                f,
                "not used: CRC {found:08x}, but .gnu_debuglink says {expected:08x}"
            ),
            FileProblemKind::Unpack {
                section,
                offset,
                why,
            } => write!(
                f,
                "{section} at offset {offset:#x} cannot be unpacked: {why}"
            ),
            FileProblemKind::UnpackLimit { section, limit } => {
                write!(f, "{section} unpacks to more than {limit} bytes")
            }
            FileProblemKind::NoSegment { offset } => {
                write!(
                    f,
                    "no segment at file offset {offset:#x}, where it was mapped"
                )
            }
            FileProblemKind::JitLine { line } => {
                write!(
                    f,
                    "line {line} is not START SIZE NAME; it and others were left out"
                )
            }
            FileProblemKind::JitLimit { limit } => {
                write!(f, "more than {limit} lines; the rest was left out")
            }
        }
    }
}

impl std::error::Error for FileProblem {}
