//! Writes the blocks of a trace one after another, and the index at the end.

use super::error::WriteError;
use super::index::{self, Entry, INDEX_ENTRIES_MAX};
use super::layout::{
    BLOCK_BYTES_MAX, BLOCK_HEADER_BYTES, BlockHeader, BlockType, FILE_HEADER_BYTES, FLAG_ZSTD,
    FileHeader, Footer, padded,
};
use std::io::Write;
use zerocopy::IntoBytes;

/// Options for writing a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutputOptions {
    /// The zstd level; `None` writes every block uncompressed.
    pub level: Option<i32>,
    /// Write the sections of images uncompressed, so that a reader can borrow them.
    pub images_in_place: bool,
}

impl Default for OutputOptions {
    /// Compresses everything, including images.
    fn default() -> Self {
        OutputOptions {
            level: Some(6),
            images_in_place: false,
        }
    }
}

impl OutputOptions {
    /// For traces that can be made again: compresses at zstd's level 1, about three times as fast for
    /// 2 to 17 % more bytes.
    pub const fn fast() -> Self {
        OutputOptions {
            level: Some(1),
            images_in_place: false,
        }
    }
}

/// The block writer.
pub(crate) struct Output<W> {
    out: W,
    options: OutputOptions,
    compressor: zstd::bulk::Compressor<'static>,
    /// Reused buffers: the compressed payload, and the block.
    packed: Vec<u8>,
    block: Vec<u8>,
    offset: u64,
    previous_index: u64,
    index_start: u64,
    entries: Vec<Entry>,
    failed: bool,
}

impl<W: Write> Output<W> {
    /// Writes the file header.
    pub(crate) fn new(mut out: W, options: OutputOptions) -> Result<Self, WriteError> {
        out.write_all(FileHeader::new().as_bytes())?;
        Ok(Output {
            out,
            options,
            compressor: zstd::bulk::Compressor::new(options.level.unwrap_or(0))?,
            packed: Vec::new(),
            block: Vec::new(),
            offset: FILE_HEADER_BYTES,
            previous_index: 0,
            index_start: FILE_HEADER_BYTES,
            entries: Vec::new(),
            failed: false,
        })
    }

    /// File offset of the next block.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// Returns the underlying writer.
    pub(crate) fn into_inner(self) -> W {
        self.out
    }

    /// Writes a block of image data and returns its offset.
    pub(crate) fn image_data(&mut self, payload: &[u8]) -> Result<u64, WriteError> {
        self.write(BlockType::Data, 0, payload, !self.options.images_in_place)
    }

    /// Writes a block and returns its offset.
    pub(crate) fn block(
        &mut self,
        block_type: BlockType,
        count: u32,
        payload: &[u8],
    ) -> Result<u64, WriteError> {
        self.write(block_type, count, payload, true)
    }

    fn write(
        &mut self,
        block_type: BlockType,
        count: u32,
        payload: &[u8],
        compress: bool,
    ) -> Result<u64, WriteError> {
        if self.failed {
            return Err(WriteError::Failed);
        }

        WriteError::check("bytes in a block", payload.len(), BLOCK_BYTES_MAX)?;

        let is_packed = compress && self.options.level.is_some() && {
            self.packed.clear();
            let room = zstd::zstd_safe::compress_bound(payload.len());
            // The compressor writes into the room that is there.
            self.packed.reserve(room);
            self.compressor
                .compress_to_buffer(payload, &mut self.packed)?;
            shrinks(self.packed.len(), payload.len())
        };

        // What does not shrink is stored as it is, and can be read in place.
        let stored = if is_packed { &self.packed } else { payload };
        let mut header = BlockHeader {
            block_type: (block_type as u16).into(),
            flags: if is_packed { FLAG_ZSTD } else { 0 }.into(),
            length: (stored.len() as u32).into(),
            plain_length: (payload.len() as u32).into(),
            count: count.into(),
            reserved: 0.into(),
            crc32c: 0.into(),
        };

        header.crc32c = header.computed_crc32c(stored).into();
        let size = padded(stored.len() as u64);
        // Blocks start at multiples of 8.
        let padding = &[0; 8][..(size - stored.len() as u64) as usize];

        // After half a block no more can be written: a reader would not find what follows.
        self.failed = true;
        // In one write, without buffering: a recorder that is killed leaves complete blocks.
        self.block.clear();
        for piece in [header.as_bytes(), stored, padding] {
            self.block.extend_from_slice(piece);
        }
        self.out.write_all(&self.block)?;
        self.out.flush()?;
        self.failed = false;

        let offset = self.offset;
        self.offset += BLOCK_HEADER_BYTES + size;
        let (number, length) = (block_type as u16, header.length.get());
        self.entries.push(Entry {
            offset,
            number,
            length,
            count,
        });

        // A recording may be long, and the list of its blocks must not grow with it.
        if self.entries.len() >= INDEX_ENTRIES_MAX {
            self.index()?;
        }

        Ok(offset)
    }

    /// Writes an index block for the blocks since the previous one.
    fn index(&mut self) -> Result<(), WriteError> {
        let entries = std::mem::take(&mut self.entries);
        let payload = index::encode(self.previous_index, self.index_start, &entries);
        self.previous_index = self.block(BlockType::Index, 0, &payload)?;
        self.entries.clear();
        self.index_start = self.offset;
        Ok(())
    }

    /// Writes the index and the footer.
    pub(crate) fn finish(&mut self) -> Result<(), WriteError> {
        self.index()?;
        self.failed = true;
        self.out
            .write_all(Footer::new(self.previous_index).as_bytes())?;
        self.out.flush()?;
        Ok(())
    }
}

/// Is it worth storing `plain` bytes as `packed` bytes? A payload that barely shrinks is stored
/// uncompressed so that it can be read in place.
fn shrinks(packed: usize, plain: usize) -> bool {
    packed + packed / 8 < plain
}

#[cfg(test)]
mod tests;
