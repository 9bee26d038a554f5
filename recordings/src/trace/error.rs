//! What can be wrong with a trace, where, and what to do about it.

use super::layout::{BLOCK_BYTES_MAX, BlockType, VERSION};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Something is wrong inside a payload; who calls knows which block it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bad {
    /// What is wrong.
    pub(crate) what: &'static str,
    /// At which byte of the payload, decompressed.
    pub(crate) at: usize,
}

/// A trace cannot be read, or not further than to some place.
#[derive(Debug)]
pub struct TraceError {
    /// The file, if the trace was opened by name.
    pub file: Option<PathBuf>,
    /// Where in the file the block, or the piece, begins that cannot be read.
    pub offset: u64,
    /// What kind of block it is, where that is known.
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
    /// The file does not begin as a trace does.
    #[error("this is not a trace: it does not begin with the trace magic")]
    Magic,
    /// Another version of the format.
    #[error("the trace has format version {found}; this program reads version {VERSION}")]
    Version {
        /// The version in the header.
        found: u16,
    },
    /// The file ends where more is needed.
    #[error("the file ends after {left} of {needed} bytes")]
    Short {
        /// Bytes that are needed from the offset on.
        needed: u64,
        /// Bytes that there are.
        left: u64,
    },
    /// The checksum does not match: the bytes were altered after they had been written.
    #[error("damaged: the checksum is {found:#010x}, computed {computed:#010x}")]
    Checksum {
        /// In the file.
        found: u32,
        /// Of the bytes.
        computed: u32,
    },
    /// A block header says that the block is larger than blocks may be.
    #[error("the block claims {bytes} bytes; a block has at most {BLOCK_BYTES_MAX}")]
    BlockTooLarge {
        /// The claimed size.
        bytes: u64,
    },
    /// A block header has a flag, or a value in a reserved field, that this version lacks.
    #[error("the block uses a feature that this program does not know (flags {flags:#06x})")]
    UnknownFlags {
        /// The flags.
        flags: u16,
    },
    /// The bytes between blocks are not zero.
    #[error("damaged: the padding behind the block is not zero")]
    Padding,
    /// The payload cannot be decompressed.
    #[error("the payload is not a zstd frame of {plain_length} bytes")]
    Compression {
        /// The size in the block header.
        plain_length: u32,
    },
    /// The payload says something that cannot be.
    #[error("malformed at byte {at} of the payload: {what}")]
    Malformed {
        /// What is wrong.
        what: &'static str,
        /// Byte of the payload, decompressed.
        at: usize,
    },
    /// A block refers to a place where no block of the needed type begins.
    #[error("it refers to a {needed} block at offset {target:#x}, where none begins")]
    Reference {
        /// The needed type.
        needed: &'static str,
        /// The offset that is referred to.
        target: u64,
    },
    /// The index says something else than the block that it lists.
    #[error("the index lists another block here than there is")]
    IndexDiffers,
    /// The images together are larger than a reader accepts.
    #[error("the images need more than {max} {what}")]
    ImagesTooLarge {
        /// The limit.
        max: u64,
        /// Of what.
        what: &'static str,
    },
    /// A sample was asked for that the trace does not have.
    #[error("there is no sample {number}; the trace has {count}, numbered from 0")]
    NoSample {
        /// The number.
        number: u64,
        /// How many there are.
        count: u64,
    },
}

impl TraceErrorKind {
    /// What the reader of the message can do; empty where the message says it all.
    pub const fn help(&self) -> &'static str {
        match self {
            TraceErrorKind::Magic => {
                "convert perf.data, core files and kernel dumps with `unwind-sim import` first"
            }
            TraceErrorKind::Version { .. } | TraceErrorKind::UnknownFlags { .. } => {
                "read it with the version of unwind-sim that wrote it, or a later one"
            }
            TraceErrorKind::Short { .. } => "the recording was interrupted or the copy cut short",
            TraceErrorKind::Checksum { .. }
            | TraceErrorKind::Padding
            | TraceErrorKind::Compression { .. }
            | TraceErrorKind::IndexDiffers => "copy the file again from where it was recorded",
            TraceErrorKind::Malformed { .. }
            | TraceErrorKind::Reference { .. }
            | TraceErrorKind::BlockTooLarge { .. }
            | TraceErrorKind::ImagesTooLarge { .. } => {
                "whoever wrote this file does not follow docs/trace-format.md"
            }
            TraceErrorKind::Io(_) | TraceErrorKind::NoSample { .. } => "",
        }
    }

    /// At this place.
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
    /// `FILE: offset 0x10, samples block: what is wrong`, and `; what to do` where there is more
    /// to say.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{}: ", file.display())?,
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
    /// The file could not be made.
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The output failed.
    #[error("cannot write the trace: {0}")]
    Io(#[from] io::Error),
    /// The output failed earlier, and the file ends there.
    #[error("cannot write the trace: an earlier write failed")]
    Failed,
    /// A sample, an event or an image has more of something than the format allows.
    #[error("{what}: {found} is more than the {max} that a trace can hold")]
    TooLarge {
        /// Of what.
        what: &'static str,
        /// How many.
        found: u64,
        /// How many there may be.
        max: u64,
    },
    /// A region's end lies behind the end of the address space.
    #[error("a region of {bytes} bytes at {address:#x} reaches behind the last address")]
    RegionWraps {
        /// Its address.
        address: u64,
        /// Its size.
        bytes: u64,
    },
    /// An event names an image that was not added.
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
