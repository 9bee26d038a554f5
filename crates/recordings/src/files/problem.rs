//! Problems with the files of mappings.

use super::candidates::DELETED;
use crate::jitdump;
use crate::open::NotAFile;
use crate::printable::PrintableName as _;
use std::fmt;
use std::io;
use unwind_sim_unwind::elf::ElfError;
use unwind_sim_unwind::elf::unpack::{UNPACKED_MAX, UnpackErrorKind};

/// Why a file, or a part of it, was not used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[error("{}: {kind}", path.printable())]
pub struct FileProblem {
    /// The file, or the kernel's name for the mapping.
    pub path: String,
    /// The recorded build ID; empty if unknown.
    pub build_id: Vec<u8>,
    /// What is wrong.
    pub kind: FileProblemKind,
}

impl FileProblem {
    /// Whether the file is there but could not be read. One that was removed, such as a memfd, is not
    /// there: it can only be read through `/proc`, which may be closed.
    pub fn is_unread(&self) -> bool {
        matches!(self.kind, FileProblemKind::Io(_)) && !self.path.ends_with(DELETED)
    }

    /// A problem with the file at `path`, which had this build ID when it was recorded.
    pub fn new(path: &str, build_id: &[u8], kind: FileProblemKind) -> FileProblem {
        FileProblem {
            path: path.to_owned(),
            build_id: build_id.to_vec(),
            kind,
        }
    }
}

/// The kinds of [`FileProblem`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileProblemKind {
    /// The file was not found.
    #[error("not found; pass the directory that contains it with --symfs")]
    NotFound,
    /// The recording has no path of the program's file.
    #[error("the path of the program is not recorded; pass its file with --exe")]
    NoPath,
    /// The file cannot be opened or mapped.
    #[error("cannot be read: {0}")]
    Io(io::ErrorKind),
    /// The file is not the expected ELF file, or a part of it is invalid.
    #[error(transparent)]
    Elf(ElfError),
    /// The file is of another format, so it has no tables that are read here.
    #[error("{0}, not ELF: its unwind information is not read")]
    NotElf(&'static str),
    /// There is something else than a file.
    #[error(transparent)]
    NotAFile(NotAFile),
    /// The file is another build and was not used.
    #[error(
        "not used: build id {}, but {} was recorded",
        Hex(found),
        Hex(expected)
    )]
    BuildId {
        /// Build ID in the recording.
        expected: Vec<u8>,
        /// Build ID in the file; empty if it has none.
        found: Vec<u8>,
    },
    /// The debug file named by `.gnu_debuglink` is another build and was not used.
    #[error("not used: CRC {found:08x}, but .gnu_debuglink says {expected:08x}")]
    Crc {
        /// CRC stated in the program.
        expected: u32,
        /// CRC of the debug file.
        found: u32,
    },
    /// A compressed section cannot be unpacked.
    #[error("{section} at offset {offset:#x} cannot be unpacked: {why}")]
    Unpack {
        /// Its name.
        section: &'static str,
        /// Offset in the file, bytes.
        offset: u64,
        /// The decompressor's error.
        why: io::ErrorKind,
    },
    /// An unpacked section exceeds the limit.
    #[error("{section} unpacks to more than {limit} bytes")]
    UnpackLimit {
        /// Its name.
        section: &'static str,
        /// The limit, bytes.
        limit: u64,
    },
    /// No segment of the file matches the mapping.
    #[error("mapped from file offset {offset:#x}, but no segment is there")]
    NoSegment {
        /// The mapping's offset in the file, bytes.
        offset: u64,
    },
    /// The file is used, but no segment has room for what was mapped: it may be another build.
    #[error(
        "{length:#x} bytes were mapped from file offset {offset:#x}, more than the segment there \
         has, and no build id was recorded: it may be another build"
    )]
    OtherSegments {
        /// The mapping's offset in the file, bytes.
        offset: u64,
        /// The length of the mapping, bytes.
        length: u64,
    },
    /// The file is used, but was changed after the recording was made.
    #[error("changed after the recording, which has no build id to check: it may be another build")]
    Newer,
    /// A jitdump file, or a part of it, cannot be used.
    #[error("jitdump: {0}")]
    Jitdump(jitdump::Problem),
    /// The file is used, but its first page is not the one that a core has: it is another build.
    #[error(
        "its byte at offset {offset:#x} is not the one in memory, and no build id was recorded: it is \
         another build"
    )]
    OtherStart {
        /// Offset of the first byte that differs.
        offset: u64,
    },
    /// A line of a `perf-PID.map` is not `START SIZE NAME`.
    #[error("line {line} is not START SIZE NAME; such lines were skipped")]
    JitLine {
        /// The line number, from 1.
        line: u64,
    },
    /// A `perf-PID.map` has too many lines.
    #[error("more than {limit} lines; the rest was skipped")]
    JitLimit {
        /// The maximum number of lines.
        limit: u64,
    },
}

impl FileProblemKind {
    /// Why a section, whose compressed bytes are at `offset`, could not be unpacked.
    pub(super) fn unpack(
        section: &'static str,
        offset: u64,
        what: UnpackErrorKind,
    ) -> FileProblemKind {
        match what {
            UnpackErrorKind::Data(why) => FileProblemKind::Unpack {
                section,
                offset,
                why,
            },
            _ => FileProblemKind::UnpackLimit {
                section,
                limit: UNPACKED_MAX,
            },
        }
    }

    pub(super) fn from_io(error: io::Error) -> FileProblemKind {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => FileProblemKind::NotFound,
            kind => NotAFile::of(&error).map_or(Self::Io(kind), Self::NotAFile),
        }
    }

    /// Whether the file is used nevertheless, although it may be another one than was mapped.
    pub const fn is_doubt(&self) -> bool {
        matches!(
            self,
            Self::OtherSegments { .. } | Self::Newer | Self::OtherStart { .. }
        )
    }

    /// Whether it says which build a file is: another one, perhaps another one, or one that has to be
    /// named. All else is about files that are missing or damaged.
    pub const fn is_about_build(&self) -> bool {
        self.is_doubt() || matches!(self, Self::BuildId { .. } | Self::Crc { .. } | Self::NoPath)
    }

    /// Whether the file is there, but of another kind than ELF.
    pub const fn is_not_elf(&self) -> bool {
        matches!(self, Self::NotElf(_))
    }

    /// A stable name, for counting.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::NotFound => "not-found",
            Self::NoPath => "no-path",
            Self::Io(_) => "io",
            Self::Elf(_) => "elf",
            Self::NotElf(_) => "not-elf",
            Self::NotAFile(_) => "not-a-file",
            Self::BuildId { .. } => "build-id-mismatch",
            Self::Crc { .. } => "crc-mismatch",
            Self::Unpack { .. } => "unpack",
            Self::UnpackLimit { .. } => "unpack-limit",
            Self::NoSegment { .. } => "no-segment",
            Self::OtherSegments { .. } => "other-segments",
            Self::Newer => "newer",
            Self::Jitdump(_) => "jitdump",
            Self::OtherStart { .. } => "other-start",
            Self::JitLine { .. } => "jit-line",
            Self::JitLimit { .. } => "jit-limit",
        }
    }
}

/// Displays bytes as hexadecimal digits.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
