//! Traces built block by block, in ways that the writer never does.

use crate::trace::index::{self, Entry};
use crate::trace::layout::{BlockHeader, BlockType, FileHeader, Footer, padded};
use zerocopy::IntoBytes;

/// A file under construction, with correct checksums.
pub(in crate::trace) struct Forged {
    pub(in crate::trace) bytes: Vec<u8>,
    entries: Vec<Entry>,
}

impl Forged {
    pub(in crate::trace) fn new() -> Forged {
        Forged {
            bytes: FileHeader::new().as_bytes().to_vec(),
            entries: Vec::new(),
        }
    }

    /// File offset of the next block.
    pub(in crate::trace) fn at(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(in crate::trace) fn block(
        &mut self,
        block_type: BlockType,
        count: u32,
        payload: &[u8],
    ) -> &mut Self {
        self.raw(block_type, count, 0, payload.len() as u32, payload)
    }

    pub(in crate::trace) fn raw(
        &mut self,
        block_type: BlockType,
        count: u32,
        flags: u16,
        plain: u32,
        payload: &[u8],
    ) -> &mut Self {
        let mut header = BlockHeader {
            block_type: (block_type as u16).into(),
            flags: flags.into(),
            length: (payload.len() as u32).into(),
            plain_length: plain.into(),
            count: count.into(),
            reserved: 0.into(),
            crc32c: 0.into(),
        };
        // Right whatever else is wrong: a bad checksum would hide all other checks.
        header.crc32c = header.computed_crc32c(payload).into();

        let (offset, length) = (self.bytes.len() as u64, payload.len() as u32);
        // `finish` writes an index of these, which agrees with the headers.
        self.entries.push(Entry {
            offset,
            number: block_type as u16,
            length,
            count,
        });

        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(payload);
        self.bytes
            .resize(padded(self.bytes.len() as u64) as usize, 0);
        self
    }

    pub(in crate::trace) fn finish(&mut self) -> Vec<u8> {
        let payload = index::encode(0, 16, &self.entries);
        self.index(&payload)
    }

    pub(in crate::trace) fn index(&mut self, payload: &[u8]) -> Vec<u8> {
        let at = self.at();
        self.block(BlockType::Index, 0, payload);
        self.footer(at)
    }

    /// Appends a footer that points to an index block at `at`.
    pub(in crate::trace) fn footer(&mut self, at: u64) -> Vec<u8> {
        self.bytes.extend_from_slice(Footer::new(at).as_bytes());
        std::mem::take(&mut self.bytes)
    }
}
