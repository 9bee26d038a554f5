//! Errors in perf.data files, with their locations.

use std::fmt;

/// Why a perf.data file, or one of its records, could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PerfError {
    /// What is wrong.
    pub kind: PerfErrorKind,
    /// File offset, bytes; for an unpacked record, that of the compressed record.
    pub offset: u64,
    /// The part of the file that was being read.
    pub part: &'static str,
}

impl PerfError {
    pub(crate) const fn new(kind: PerfErrorKind, offset: u64, part: &'static str) -> Self {
        Self { kind, offset, part }
    }
}

/// The kinds of [`PerfError`], each with the offending value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PerfErrorKind {
    /// The file does not start with `PERFILE2`.
    NotPerfData,
    /// The file was written on a big-endian machine.
    BigEndian,
    /// The `PERFFILE` layout of 2009.
    OldLayout,
    /// The size in the file header is neither 16 (pipe) nor at least 104 (file).
    HeaderSize(u64),
    /// Something needs more bytes than there are.
    Short {
        /// Bytes needed.
        need: u64,
        /// Bytes available.
        have: u64,
    },
    /// A section ends outside the file.
    SectionOutOfFile {
        /// Its size.
        size: u64,
        /// Number of its bytes that are outside.
        missing: u64,
        /// Size of the file.
        file: u64,
    },
    /// The size of the data was never written, because the recorder was killed. Everything up to
    /// the end of the file is read.
    DataSizeZero,
    /// An attribute states an invalid size.
    AttrSize(u64),
    /// There is no attribute, so the layout of samples is unknown.
    NoAttr,
    /// There are more attributes, or more IDs, than any recording has.
    TooMany {
        /// The stated number.
        count: u64,
        /// The limit.
        limit: u64,
    },
    /// A record's size is below that of its header.
    RecordSize(u16),
    /// A record extends past the end of the data.
    RecordPastEnd {
        /// Its size.
        size: u64,
        /// Bytes left.
        left: u64,
    },
    /// A count in a record exceeds what fits into the record.
    Count {
        /// The stated count.
        count: u64,
        /// The number of entries that fit.
        room: u64,
    },
    /// The offset is outside the data.
    NoRecordHere,
    /// A sample has an event ID that no attribute has.
    UnknownId(u64),
    /// A compressed record contains a compressed record.
    NestedCompression,
    /// zstd rejects the data.
    Zstd(ZstdFault),
    /// A compressed record unpacks to more than the limit.
    DecompressionLimit(u64),
    /// The compressed data ends inside a record.
    UnfinishedRecord {
        /// Bytes of the record that are there.
        have: u64,
    },
    /// The compression is not zstd.
    CompressionType(u32),
}

/// Why zstd failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ZstdFault {
    /// The decoder is not built in: the feature `zstd` is off.
    NotBuilt,
    /// The decoder could not be created.
    Init,
    /// The data is corrupt, or its window exceeds 128 MiB.
    Data,
    /// The decoder made no progress.
    Stalled,
}

impl PerfErrorKind {
    /// Whether bytes are missing at the end of a file that was otherwise right: its recorder was
    /// killed, or its copy is incomplete.
    pub const fn is_cut(&self) -> bool {
        matches!(
            self,
            Self::Short { .. }
                | Self::SectionOutOfFile { .. }
                | Self::DataSizeZero
                | Self::RecordPastEnd { .. }
                | Self::UnfinishedRecord { .. }
        )
    }
}

impl fmt::Display for PerfErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotPerfData => write!(f, "not a perf.data file (no PERFILE2 at its start)"),
            Self::BigEndian => write!(
                f,
                "written on a big-endian machine, which is not supported; convert it there with \
                 `perf script`"
            ),
            // Files before PERFILE2 have another header.
            Self::OldLayout => {
                write!(
                    f,
                    "the PERFFILE layout of 2009 is not supported; record with a newer perf"
                )
            }
            Self::HeaderSize(size) => {
                write!(
                    f,
                    "header size {size} is neither 16 (pipe) nor at least 104 (file)"
                )
            }
            Self::Short { need, have } => write!(f, "cut short: needs {need} bytes, has {have}"),
            Self::SectionOutOfFile {
                size,
                missing,
                file,
            } => {
                write!(
                    f,
                    "{missing} of {size} bytes lie outside the file of {file} bytes"
                )
            }
            // A note rather than an error: the rest of the file is read.
            Self::DataSizeZero => {
                write!(
                    f,
                    "size 0: the recorder was killed; reading up to the end of the file"
                )
            }
            Self::AttrSize(size) => write!(f, "invalid attribute size {size}"),
            Self::NoAttr => write!(f, "no event attribute, so the layout of samples is unknown"),
            Self::TooMany { count, limit } => write!(f, "{count} entries, the limit is {limit}"),
            Self::RecordSize(size) => {
                write!(f, "record size {size} is below the 8 bytes of its header")
            }
            // Both numbers, so that a cut file can be told from a wrong size.
            Self::RecordPastEnd { size, left } => {
                let missing = size.saturating_sub(left);
                write!(
                    f,
                    "record of {size} bytes, but only {left} bytes are left: {missing} are missing"
                )
            }
            Self::Count { count, room } => {
                write!(f, "count {count} does not fit: there is room for {room}")
            }
            Self::NoRecordHere => write!(f, "no record at this offset"),
            Self::UnknownId(id) => write!(f, "event id {id} belongs to no attribute"),
            Self::NestedCompression => write!(f, "compressed record inside a compressed record"),
            Self::Zstd(ZstdFault::NotBuilt) => write!(
                f,
                "compressed, and this reader was built without its feature `zstd`"
            ),
            Self::Zstd(ZstdFault::Init) => write!(f, "the zstd decoder could not be created"),
            Self::Zstd(ZstdFault::Data) => {
                write!(f, "zstd data is corrupt or needs a window of over 128 MiB")
            }
            Self::Zstd(ZstdFault::Stalled) => write!(f, "zstd data makes no progress"),
            Self::DecompressionLimit(limit) => {
                write!(f, "compressed record unpacks to more than {limit} bytes")
            }
            Self::UnfinishedRecord { have } => {
                write!(
                    f,
                    "compressed data ends inside a record, {have} bytes into it"
                )
            }
            Self::CompressionType(kind) => {
                write!(f, "compression type {kind} is not supported (only zstd, 1)")
            }
        }
    }
}

impl fmt::Display for PerfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "perf.data: {} at offset {:#x}: {}",
            self.part, self.offset, self.kind
        )
    }
}

impl std::error::Error for PerfError {}
