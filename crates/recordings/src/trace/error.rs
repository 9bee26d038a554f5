//! Trace errors: what is wrong, where, and how to fix it.

use super::layout::{BLOCK_BYTES_MAX, BlockType, VERSION};
use crate::printable::PrintableName as _;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// An error inside a payload; the caller knows the block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bad {
    /// What is wrong.
    pub(crate) what: &'static str,
    /// Byte offset in the decompressed payload.
    pub(crate) at: usize,
}

/// A trace cannot be read, or only up to some offset.
#[derive(Debug)]
pub struct TraceError {
    /// The file, if the trace was opened by path.
    pub file: Option<PathBuf>,
    /// File offset of the block or part that cannot be read.
    pub offset: u64,
    /// The block's type, if known.
    pub block: Option<BlockType>,
    /// What is wrong.
    pub kind: TraceErrorKind,
}

/// What is wrong with a trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceErrorKind {
    /// The file cannot be opened or mapped.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file does not start with the trace magic.
    #[error("not a trace: it does not start with the trace magic")]
    Magic,
    /// The file has another format version.
    #[error("the trace has format version {found}; this program reads version {VERSION}")]
    Version {
        /// The version in the header.
        found: u16,
    },
    /// The file ends too early.
    #[error("the file ends after {left} of {needed} bytes")]
    Short {
        /// Bytes needed from the offset on.
        needed: u64,
        /// Bytes available.
        left: u64,
    },
    /// The checksum does not match: the bytes were altered after they were written.
    #[error("damaged: the stored checksum is {found:#010x}, the computed one {computed:#010x}")]
    Checksum {
        /// The checksum in the file.
        found: u32,
        /// The checksum computed from the bytes.
        computed: u32,
    },
    /// A block header claims more than the maximum block size.
    #[error("the block claims {bytes} bytes; a block has at most {BLOCK_BYTES_MAX}")]
    BlockTooLarge {
        /// The claimed size.
        bytes: u64,
    },
    /// A block header has a flag, or a value in a reserved field, that this version does not know.
    #[error("the block uses a feature that this program does not know (flags {flags:#06x})")]
    UnknownFlags {
        /// The flags.
        flags: u16,
    },
    /// The bytes between blocks are not zero.
    #[error("damaged: the padding after the block is not zero")]
    Padding,
    /// The payload cannot be decompressed.
    #[error("the payload is not a zstd frame of {plain_length} bytes")]
    Compression {
        /// The size in the block header.
        plain_length: u32,
    },
    /// The payload contains an invalid value.
    #[error("malformed at byte {at} of the payload: {what}")]
    Malformed {
        /// What is wrong.
        what: &'static str,
        /// Byte offset in the decompressed payload.
        at: usize,
    },
    /// A block refers to an offset where no block of the needed type starts.
    #[error("refers to a {needed} block at offset {target:#x}, where none starts")]
    Reference {
        /// The needed type.
        needed: &'static str,
        /// The offset referred to.
        target: u64,
    },
    /// The index disagrees with the block it lists.
    #[error("the index lists a different block here")]
    IndexDiffers,
    /// The images together are larger than a reader accepts.
    #[error("the images need more than {max} {what}")]
    ImagesTooLarge {
        /// The limit.
        max: u64,
        /// The unit of the limit.
        what: &'static str,
    },
    /// The trace does not have the requested sample.
    #[error("there is no sample {number}; the trace has {count}, numbered from 0")]
    NoSample {
        /// The requested number.
        number: u64,
        /// The number of samples in the trace.
        count: u64,
    },
}

impl TraceErrorKind {
    /// What the user can do about it; empty if the message needs no addition.
    pub const fn help(&self) -> &'static str {
        match self {
            TraceErrorKind::Magic => {
                "convert perf.data, core files and kernel dumps with `unwind-sim import` first"
            }
            TraceErrorKind::Version { .. } | TraceErrorKind::UnknownFlags { .. } => {
                "read it with the version of unwind-sim that wrote it, or a later one"
            }
            TraceErrorKind::Short { .. } => "the recording was interrupted or the copy truncated",
            TraceErrorKind::Checksum { .. }
            | TraceErrorKind::Padding
            | TraceErrorKind::Compression { .. }
            | TraceErrorKind::IndexDiffers => "copy the file again from where it was recorded",
            TraceErrorKind::Malformed { .. }
            | TraceErrorKind::Reference { .. }
            | TraceErrorKind::BlockTooLarge { .. }
            | TraceErrorKind::ImagesTooLarge { .. } => {
                "the program that wrote this file does not follow docs/trace-format.md"
            }
            TraceErrorKind::Io(_) | TraceErrorKind::NoSample { .. } => "",
        }
    }

    /// Adds the location.
    pub(crate) fn at(self, offset: u64, block: Option<BlockType>) -> TraceError {
        let file = None;
        TraceError {
            file,
            offset,
            block,
            kind: self,
        }
    }
}

impl From<Bad> for TraceErrorKind {
    fn from(bad: Bad) -> Self {
        TraceErrorKind::Malformed {
            what: bad.what,
            at: bad.at,
        }
    }
}

impl fmt::Display for TraceError {
    /// Writes `FILE: offset 0x10, samples block: what is wrong`, followed by `; what to do` if
    /// there is help.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{}: ", file.printable())?,
            None => f.write_str("trace: ")?,
        }
        match (&self.kind, self.block) {
            (TraceErrorKind::Io(_) | TraceErrorKind::NoSample { .. }, _) => {}
            (_, None) => write!(f, "offset {:#x}: ", self.offset)?,
            (_, Some(block)) => write!(f, "offset {:#x}, {} block: ", self.offset, block.as_str())?,
        }
        write!(f, "{}", self.kind)?;
        match self.kind.help() {
            "" => Ok(()),
            help => write!(f, "; {help}"),
        }
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            TraceErrorKind::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// A trace cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The file cannot be created.
    #[error("cannot write {}: {source}", path.printable())]
    File {
        /// Its path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Writing failed.
    #[error("cannot write the trace: {0}")]
    Io(#[from] io::Error),
    /// An earlier write failed, and the file ends there.
    #[error("cannot write the trace: an earlier write failed")]
    Failed,
    /// A sample, event or image exceeds a limit of the format.
    #[error("{what}: {found} is more than the {max} that a trace can hold")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// The actual number.
        found: u64,
        /// The maximum.
        max: u64,
    },
    /// A region extends past the end of the address space.
    #[error("a region of {bytes} bytes at {address:#x} extends past the last address")]
    RegionWraps {
        /// Address of its first byte.
        address: u64,
        /// Size, bytes.
        bytes: u64,
    },
    /// An event refers to an image that was not added.
    #[error("image {0} was not added to the trace")]
    NoImage(u32),
}

impl WriteError {
    /// Fails if `found` is more than `max`.
    pub(crate) fn check(what: &'static str, found: usize, max: usize) -> Result<(), WriteError> {
        if found <= max {
            return Ok(());
        }
        let (found, max) = (found as u64, max as u64);
        Err(WriteError::TooLarge { what, found, max })
    }
}
