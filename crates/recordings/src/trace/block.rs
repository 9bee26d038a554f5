//! Blocks: locating one at an offset, checking it, and reading its payload.

use super::error::{TraceError, TraceErrorKind};
use super::layout::{
    BLOCK_BYTES_MAX, BLOCK_HEADER_BYTES, BlockHeader, BlockType, FLAG_ZSTD, padded,
};
use std::ops::Range;
use unwind_sim_unwind::image::{Bytes, Owner};
use zerocopy::FromBytes;

/// A block as described by its header. Its payload has not been read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// File offset of the header.
    pub(crate) offset: u64,
    header: BlockHeader,
}

impl Block {
    /// The block at `offset` of `file`. Checks that it is inside the file and within the size
    /// limits.
    pub(crate) fn at(file: &[u8], offset: u64) -> Result<Block, TraceError> {
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|o| file.get(o..))
            .unwrap_or(&[]);
        let short = |needed| TraceErrorKind::Short {
            needed,
            left: rest.len() as u64,
        };

        let Ok((header, _)) = BlockHeader::read_from_prefix(rest) else {
            return Err(short(BLOCK_HEADER_BYTES).at(offset, None));
        };

        let block = Block { offset, header };
        let flags = header.flags.get();
        // Neither length is believed before it is checked.
        let larger = header.length.get().max(header.plain_length.get());
        let kind = if larger as usize > BLOCK_BYTES_MAX {
            TraceErrorKind::BlockTooLarge {
                bytes: u64::from(larger),
            }
        } else if BLOCK_HEADER_BYTES + u64::from(block.length()) > rest.len() as u64 {
            // Padding may be missing at the end: the payload is complete, which its checksum
            // confirms.
            short(block.size())
        } else if flags & !FLAG_ZSTD != 0 || header.reserved != 0 {
            TraceErrorKind::UnknownFlags { flags }
        } else if flags == 0 && header.length != header.plain_length {
            TraceErrorKind::Compression {
                plain_length: header.plain_length.get(),
            }
        } else {
            return Ok(block);
        };

        Err(kind.at(offset, None))
    }

    /// The number of its type.
    pub(crate) fn number(&self) -> u16 {
        self.header.block_type.get()
    }

    /// Its type, if this version knows it.
    pub(crate) fn block_type(&self) -> Option<BlockType> {
        BlockType::from_number(self.number())
    }

    /// Number of samples, events or symbols, as claimed by the header.
    pub(crate) fn count(&self) -> u32 {
        self.header.count.get()
    }

    /// Bytes of the payload as stored.
    pub(crate) fn length(&self) -> u32 {
        self.header.length.get()
    }

    /// Bytes of the payload when decompressed.
    pub(crate) fn plain_length(&self) -> u32 {
        self.header.plain_length.get()
    }

    /// Is the payload compressed?
    pub(crate) fn is_compressed(&self) -> bool {
        self.header.flags != 0
    }

    /// Bytes from the start of the header to the end of the padding.
    fn size(&self) -> u64 {
        BLOCK_HEADER_BYTES + padded(u64::from(self.length()))
    }

    /// File offset of the next block.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.size()
    }

    fn stored(&self) -> Range<usize> {
        let start = (self.offset + BLOCK_HEADER_BYTES) as usize;
        start..start + self.length() as usize
    }

    /// An error in this block.
    pub(crate) fn error(&self, kind: impl Into<TraceErrorKind>) -> TraceError {
        kind.into().at(self.offset, self.block_type())
    }

    /// Verifies the checksum and the padding.
    pub(crate) fn check(&self, file: &[u8]) -> Result<(), TraceError> {
        let stored = self.stored();
        let padding = stored.end..(self.end() as usize).min(file.len());
        let (found, computed) = (
            self.header.crc32c.get(),
            self.header.computed_crc32c(&file[stored]),
        );
        if found != computed {
            return Err(self.error(TraceErrorKind::Checksum { found, computed }));
        }
        if file[padding].iter().any(|b| *b != 0) {
            return Err(self.error(TraceErrorKind::Padding));
        }
        Ok(())
    }

    /// The verified payload; borrowed from the file if it is not compressed.
    pub(crate) fn payload(&self, file: &Owner) -> Result<Bytes, TraceError> {
        let bytes = (**file).as_ref();
        self.check(bytes)?;
        let broken = || {
            let plain_length = self.plain_length();
            self.error(TraceErrorKind::Compression { plain_length })
        };
        if !self.is_compressed() {
            return Bytes::new(file.clone(), self.stored()).ok_or_else(broken);
        }
        // At most 1 MiB: the size was checked when the header was read.
        let capacity = self.plain_length() as usize;
        let plain = zstd::bulk::decompress(&bytes[self.stored()], capacity);
        let plain = plain.ok().filter(|p| p.len() == capacity);
        plain.map(Bytes::from_vec).ok_or_else(broken)
    }
}
