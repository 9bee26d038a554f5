//! Decoded blocks that the spaces of a machine share: what is decoded once for one process need not be for
//! another one that has the same bytes at the same addresses.

use super::{Block, CodeBytes, Kind};
use crate::processor::Processor;
use hashbrown::{HashMap, HashSet};
use std::hash::BuildHasher as _;

/// The number of blocks from which on those are dropped that no space has.
const PRUNED_FROM: usize = 1 << 16;
/// The maximum number of hashes of blocks that were decoded once.
const SEEN_MAX: usize = 1 << 20;
/// The number of bytes at a block's start by which it is looked up.
pub(super) const HEAD: usize = 8;

/// What blocks are looked up by: their address, and the first bytes there.
type Key = (u64, [u8; HEAD]);

/// The blocks that spaces have decoded, which another one takes from here if it has the same bytes. A block is
/// kept when it is decoded for the second time, and nothing before there is a second space with code: most
/// processes run what no other one does.
#[derive(Clone, Debug)]
pub(crate) struct Library {
    blocks: HashMap<Key, Block>,
    /// Hashes of what blocks that were decoded once are looked up by.
    seen: HashSet<u32>,
    /// Whether there is more than one space.
    is_used: bool,
    /// What the blocks were decoded for.
    processor: Processor,
    kind: Kind,
    /// The number of blocks at which it is pruned next.
    prune_at: usize,
}

impl Library {
    /// No blocks.
    pub(crate) fn new() -> Library {
        Library {
            blocks: HashMap::new(),
            seen: HashSet::new(),
            is_used: false,
            processor: Processor::default(),
            kind: Kind::Joined,
            prune_at: PRUNED_FROM,
        }
    }

    /// There is a second space: from now on, blocks are kept.
    pub(crate) fn begin(&mut self) {
        self.is_used = true;
    }

    /// Forgets all blocks if they are for another processor, or of another kind.
    pub(super) fn suit(&mut self, processor: &Processor, kind: Kind) {
        if self.processor != *processor || self.kind != kind {
            self.blocks.clear();
            self.seen.clear();
            (self.processor, self.kind) = (*processor, kind);
        }
    }

    /// The block at `address` whose bytes are those there.
    pub(super) fn find(&self, address: u64, bytes: &mut CodeBytes<'_>) -> Option<Block> {
        if self.blocks.is_empty() {
            return None;
        }
        let head = *bytes.fetched().first_chunk()?;
        let block = self.blocks.get(&(address, head))?;
        let len = (block.end - block.start) as usize;
        bytes.fetch(len);
        let is_same = bytes.fetched().get(..len)? == &block.bytes()[..len];
        is_same.then(|| block.unlinked())
    }

    /// Notes that the block at `address` is decoded, from what begins with these bytes. Returns whether it
    /// should be kept: it was decoded before. Two blocks may have one hash; then one is kept too early.
    pub(super) fn wants(&mut self, address: u64, bytes: &[u8]) -> bool {
        let Some(head) = bytes.first_chunk::<HEAD>().filter(|_| self.is_used) else {
            return false;
        };
        if self.seen.len() >= SEEN_MAX {
            self.seen.clear();
        }
        let hash = self.blocks.hasher().hash_one((address, head)) as u32;
        !self.seen.insert(hash)
    }

    /// Keeps a block, instead of one with the same first bytes; nothing if it was decoded without its bytes.
    pub(super) fn add(&mut self, block: &Block) {
        let Some(&head) = block.bytes().first_chunk() else {
            return;
        };
        if self.blocks.len() >= self.prune_at {
            self.blocks.retain(|_, block| block.is_shared());
            self.prune_at = PRUNED_FROM.max(2 * self.blocks.len());
        }
        self.blocks.insert((block.start, head), block.unlinked());
    }

    /// Heap bytes, with those of blocks that a space has, too.
    pub(crate) fn bytes(&self) -> usize {
        let entries = self.blocks.capacity() * size_of::<(Key, Block)>();
        let seen = self.seen.capacity() * size_of::<u32>();
        entries + seen + self.blocks.values().map(Block::heap_bytes).sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
