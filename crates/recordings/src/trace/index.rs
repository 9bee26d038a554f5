//! The list of all blocks: written at the end, read from there, or rebuilt by a forward scan.

use super::block::Block;
use super::error::{Bad, TraceError, TraceErrorKind};
use super::layout::{
    BLOCK_HEADER_BYTES, BlockType, FILE_HEADER_BYTES, FOOTER_BYTES, Footer, IndexHeader, padded,
};
use super::varint::{Cursor, put};
use unwind_sim_unwind::image::Owner;
use zerocopy::{FromBytes, IntoBytes};

/// Number of blocks after which the writer starts another index block, which bounds its memory.
pub(crate) const INDEX_ENTRIES_MAX: usize = 1 << 16;

/// An index entry: one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// File offset of its header.
    pub(crate) offset: u64,
    /// The number of its type.
    pub(crate) number: u16,
    /// Bytes of its payload as stored.
    pub(crate) length: u32,
    /// Number of samples, events or symbols.
    pub(crate) count: u32,
}

impl Entry {
    /// The entry for a block that was read.
    pub(crate) fn of(block: &Block) -> Entry {
        Entry {
            offset: block.offset,
            number: block.number(),
            length: block.length(),
            count: block.count(),
        }
    }

    /// Is it a block of this type?
    pub(crate) fn is(&self, block_type: BlockType) -> bool {
        self.number == block_type as u16
    }

    fn end(&self) -> u64 {
        self.offset + BLOCK_HEADER_BYTES + padded(u64::from(self.length))
    }

    /// The block, if its header agrees with this entry.
    pub(crate) fn block(&self, file: &[u8]) -> Result<Block, TraceError> {
        let block = Block::at(file, self.offset)?;
        if Entry::of(&block) == *self {
            return Ok(block);
        }
        Err(block.error(TraceErrorKind::IndexDiffers))
    }
}

/// The payload of an index block that lists the adjacent `entries`.
pub(crate) fn encode(previous: u64, start: u64, entries: &[Entry]) -> Vec<u8> {
    let header = IndexHeader {
        previous: previous.into(),
        start: start.into(),
    };
    let mut out = header.as_bytes().to_vec();
    for entry in entries {
        put(&mut out, u64::from(entry.number));
        put(&mut out, u64::from(entry.length));
        put(&mut out, u64::from(entry.count));
    }
    out
}

/// All blocks of a file, and why the list ends early if the file was not finished.
pub(crate) struct Blocks {
    pub(crate) entries: Vec<Entry>,
    pub(crate) cut: Option<TraceError>,
}

/// Lists the blocks of `file`: from the index if it is valid, or else by scanning.
pub(crate) fn find(file: &Owner) -> Blocks {
    match from_index(file) {
        Some(Ok(entries)) => Blocks { entries, cut: None },
        Some(Err(error)) => {
            let mut blocks = scan((**file).as_ref());
            blocks.cut.get_or_insert(error);
            blocks
        }
        None => scan((**file).as_ref()),
    }
}

/// The blocks listed by the index; `None` without a footer.
fn from_index(file: &Owner) -> Option<Result<Vec<Entry>, TraceError>> {
    let bytes = (**file).as_ref();
    let footer = Footer::find(bytes)?;
    let end = bytes.len() as u64 - FOOTER_BYTES;
    Some(read_index(file, footer.index.get(), end))
}

/// Follows the index blocks backwards from the one at `offset`, which must end at `end`. Each one
/// lists all blocks since the previous index block, without gaps. So there are never more entries
/// than fit into the file.
fn read_index(file: &Owner, mut offset: u64, mut end: u64) -> Result<Vec<Entry>, TraceError> {
    let mut parts = Vec::new();
    loop {
        let block = Block::at((**file).as_ref(), offset)?;
        if block.block_type() != Some(BlockType::Index) || block.end() != end {
            return Err(block.error(TraceErrorKind::IndexDiffers));
        }
        let payload = block.payload(file)?;
        let part = read_part(&payload, &block).map_err(|bad| block.error(bad))?;
        let (previous, start) = (part.previous, part.start);
        parts.push(part.entries);
        if previous == 0 && start == FILE_HEADER_BYTES {
            return Ok(parts.into_iter().rev().flatten().collect());
        }
        // The next iteration rejects a block before the first one or one that does not end at
        // `start`, and `read_part` has rejected a `start` after this block. So `end` always
        // decreases.
        (offset, end) = (previous, start);
    }
}

struct Part {
    previous: u64,
    start: u64,
    entries: Vec<Entry>,
}

/// The entries of one index block, including its own.
fn read_part(payload: &[u8], block: &Block) -> Result<Part, Bad> {
    let mut cursor = Cursor::new(payload, 0);
    let header = cursor.take(size_of::<IndexHeader>())?;
    let header = IndexHeader::read_from_bytes(header).map_err(|_| cursor.bad("no index header"))?;

    let mut entries = Vec::new();
    // Offsets are not written: they follow from the lengths.
    let mut offset = header.start.get();

    while offset < block.offset {
        let number = cursor.count(u16::MAX.into(), "an invalid block type")? as u16;
        let (length, count) = (cursor.u32()?, cursor.u32()?);
        let entry = Entry {
            offset,
            number,
            length,
            count,
        };
        offset = entry.end();
        entries.push(entry);
    }

    // The blocks follow each other without a gap, so none can be hidden.
    if offset != block.offset {
        return Err(cursor.bad("the blocks listed do not end where the index starts"));
    }
    cursor.end()?;
    // An index block does not list itself.
    entries.push(Entry::of(block));

    let (previous, start) = (header.previous.get(), header.start.get());
    Ok(Part {
        previous,
        start,
        entries,
    })
}

/// Reads blocks sequentially, verifying checksums, up to the footer or the first damaged block.
fn scan(file: &[u8]) -> Blocks {
    let mut entries = Vec::new();
    let mut offset = FILE_HEADER_BYTES;
    let cut = loop {
        if offset + FOOTER_BYTES == file.len() as u64 && Footer::find(file).is_some() {
            break None;
        }
        match Block::at(file, offset).and_then(|b| b.check(file).map(|()| b)) {
            Ok(block) => {
                entries.push(Entry::of(&block));
                offset = block.end();
            }
            Err(error) => break Some(error),
        }
    };
    Blocks { entries, cut }
}

#[cfg(test)]
mod tests;
