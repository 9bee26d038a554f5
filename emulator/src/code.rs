//! Decoded code: basic blocks by start address. Not here: decoding them, and running them.

mod decode;
mod library;
mod paged;

pub(crate) use decode::decode;
pub(crate) use library::Library;

use crate::address_space::{AddressSpace, PAGE_SIZE};
use crate::op::Op;
use crate::processor::Processor;
use decode::{CodeBytes, decode_bytes};
use hashbrown::HashMap;
use paged::PhysicalPlace;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of instructions in a block.
const BLOCK_MAX: usize = 64;
/// Default for the maximum number of blocks.
const BLOCKS_MAX: usize = 1 << 20;
/// Entries in the table of recent jump targets; a power of two.
const RECENT: usize = 4096;
/// The next generation. No two collections of blocks have the same.
static GENERATIONS: AtomicU64 = AtomicU64::new(0);
/// No block.
pub(crate) const NONE: u32 = u32::MAX;
/// Start of a forgotten block: not a canonical address.
const GONE: u64 = 1 << 63;

/// The operations of a block: one instruction each, or several where that is possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// One instruction each.
    Single,
    /// Several instructions: nobody observes them.
    Joined,
    /// Both: an observer sees the single ones, and what it does not want to see is joined.
    Both,
}

/// A basic block: consecutive instructions; only the last can branch.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Number of instructions; there are at least as many operations.
    pub(crate) count: u32,
    /// The blocks it last continued at, by falling through and by a jump.
    pub(crate) next: [u32; 2],
    pub(crate) ops: Arc<[Op]>,
    /// The same as joined operations; empty if none can be joined, or nobody observes the block.
    joined: Arc<[Op]>,
    /// If there are joined ones: for each of `ops` and the end, the number of joined operations before it;
    /// [`INSIDE`] where one of them goes on. Behind that, if the block is shared, its bytes, or a few more:
    /// those by which it is looked up.
    detail: Arc<[u8]>,
}

/// Within a joined operation.
const INSIDE: u8 = u8::MAX;

impl Block {
    /// The joined operations that are those of `range`, if there are any. They can begin and end only
    /// between two joined operations.
    #[inline(always)]
    pub(crate) fn joined(&self, range: &Range<usize>) -> Option<&[Op]> {
        if self.joined.is_empty() {
            return None;
        }
        let start = *self.detail.get(range.start)?;
        let end = *self.detail.get(range.end)?;
        if start == INSIDE || end == INSIDE {
            return None;
        }
        self.joined.get(start.into()..end.into())
    }

    /// The index in `ops` of the first operation of the joined one that is `count` behind the start of
    /// a range.
    #[cold]
    pub(crate) fn single(&self, range: &Range<usize>, count: usize) -> usize {
        let joined_at = &self.detail[..self.joined_len()];
        let start = joined_at.get(range.start).map_or(0, |&at| usize::from(at));
        let at = joined_at
            .iter()
            .position(|&at| usize::from(at) == start + count);
        at.unwrap_or(range.start)
    }

    /// The number of bytes of `detail` that say where joined operations are.
    fn joined_len(&self) -> usize {
        match self.joined.len() {
            0 => 0,
            _ => self.ops.len() + 1,
        }
    }

    /// Its bytes, and a few more if it is short; nothing if it cannot be shared.
    fn bytes(&self) -> &[u8] {
        self.detail.get(self.joined_len()..).unwrap_or_default()
    }

    /// The same block, which has not continued anywhere.
    fn unlinked(&self) -> Block {
        Block {
            next: [NONE; 2],
            ..self.clone()
        }
    }

    /// Whether another block has the same operations.
    fn is_shared(&self) -> bool {
        Arc::strong_count(&self.ops) > 1
    }

    /// The heap memory used, bytes.
    fn heap_bytes(&self) -> usize {
        size_of_val(&*self.ops) + size_of_val(&*self.joined) + size_of_val(&*self.detail)
    }
}

/// All decoded blocks.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    pub(crate) blocks: Vec<Block>,
    /// In system mode by [`paged::key`].
    by_start: HashMap<u64, u32>,
    /// In system mode, where each block is in physical memory; otherwise nothing.
    places: Vec<PhysicalPlace>,
    /// Block numbers by page; a block can lie in two.
    by_page: HashMap<u64, Vec<u32>>,
    /// Block numbers by a hash of the start address.
    recent: Box<[u32; RECENT]>,
    /// Increased whenever block numbers become invalid.
    pub(crate) generation: u64,
    kind: Kind,
    /// Maximum number of blocks; beyond it all are forgotten.
    blocks_max: usize,
}

impl Code {
    /// No code.
    pub(crate) fn new(kind: Kind) -> Code {
        Code {
            kind,
            blocks: Vec::new(),
            by_start: HashMap::new(),
            places: Vec::new(),
            by_page: HashMap::new(),
            recent: Box::new([NONE; RECENT]),
            generation: GENERATIONS.fetch_add(1, Ordering::Relaxed),
            blocks_max: BLOCKS_MAX,
        }
    }

    /// The block that starts at `address`; decoded if it is not known.
    #[inline]
    pub(crate) fn find(
        &mut self,
        memory: &mut AddressSpace,
        address: u64,
        processor: &Processor,
        library: &mut Library,
    ) -> u32 {
        let slot = (address ^ address >> 12) as usize % RECENT;
        let id = self.recent[slot];
        if let Some(block) = self.blocks.get(id as usize)
            && block.start == address
        {
            return id;
        }
        let id = match self.by_start.get(&address) {
            Some(&id) => id,
            None => self.add(memory, address, processor, library),
        };
        self.recent[slot] = id;
        id
    }

    /// Adds the block that starts at `address`: from the library, or decoded.
    #[cold]
    fn add(
        &mut self,
        memory: &mut AddressSpace,
        address: u64,
        processor: &Processor,
        library: &mut Library,
    ) -> u32 {
        self.make_room(memory);
        let block = self.decode(memory, address, processor, library);
        memory.watch_code(block.start..block.end);
        let pages = pages(&(block.start..block.end));
        self.insert(block, address, pages)
    }

    /// Forgets all blocks if there are too many.
    fn make_room(&mut self, memory: &mut AddressSpace) {
        if self.blocks.len() >= self.blocks_max {
            self.forget_all(memory);
        }
    }

    /// The block at an address, from the library or decoded.
    fn decode(
        &mut self,
        memory: &AddressSpace,
        address: u64,
        processor: &Processor,
        library: &mut Library,
    ) -> Block {
        library.suit(processor, self.kind);
        let mut bytes = CodeBytes::at(memory, address, BLOCK_MAX);
        match library.find(address, &mut bytes) {
            Some(block) => block,
            None => {
                let is_kept = library.wants(address, bytes.fetched());
                let block = decode_bytes(&mut bytes, processor, self.kind, is_kept);
                library.add(&block);
                block
            }
        }
    }

    /// Adds a block, which is in these pages. Returns its number.
    fn insert(&mut self, block: Block, key: u64, pages: impl Iterator<Item = u64>) -> u32 {
        let id = self.blocks.len() as u32;
        for page in pages {
            self.by_page.entry(page).or_default().push(id);
        }
        self.by_start.insert(key, id);
        self.blocks.push(block);
        id
    }

    fn clear(&mut self) {
        *self = Code {
            blocks_max: self.blocks_max,
            ..Code::new(self.kind)
        };
    }

    /// Whether nothing was decoded.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Forgets everything if the operations of blocks are of another kind.
    pub(crate) fn set_kind(&mut self, kind: Kind, memory: &mut AddressSpace) {
        if kind != self.kind {
            self.kind = kind;
            self.forget_all(memory);
        }
    }

    /// Forgets all blocks.
    pub(crate) fn forget_all(&mut self, memory: &mut AddressSpace) {
        self.clear();
        memory.unwatch_code();
    }

    /// Forgets the blocks that overlap a range.
    pub(crate) fn forget(&mut self, range: &Range<u64>) {
        for page in pages(range) {
            let Some(ids) = self.by_page.get_mut(&page) else {
                continue;
            };
            let blocks = &mut self.blocks;
            let by_start = &mut self.by_start;
            let places = &self.places;
            ids.retain(|&id| {
                let block = &mut blocks[id as usize];
                // In system mode, the range is whole pages of physical memory.
                let place = places.get(id as usize);
                let touched = place.is_some() || block.start < range.end && range.start < block.end;
                if touched {
                    let start = block.start;
                    let key = place.map_or(start, |place| paged::key(start, place.first));
                    if by_start.get(&key) == Some(&id) {
                        by_start.remove(&key);
                    }
                    block.start = GONE;
                    block.ops = Arc::default();
                    block.joined = Arc::default();
                    block.detail = Arc::default();
                }
                !touched && block.start != GONE
            });
        }
    }

    /// Heap bytes of all decoded code. Of blocks that are shared, the operations are counted in the library.
    pub(crate) fn bytes(&self) -> usize {
        let own = self.blocks.iter().filter(|block| !block.is_shared());
        let ops: usize = own.map(Block::heap_bytes).sum();
        let entry = size_of::<(u64, u32)>() + 1;
        let pages: usize = self.by_page.values().map(|ids| 4 * ids.capacity()).sum();
        ops + self.blocks.capacity() * size_of::<Block>() + self.by_start.capacity() * entry + pages
    }
}

fn pages(range: &Range<u64>) -> Range<u64> {
    range.start / PAGE_SIZE
        ..range
            .end
            .div_ceil(PAGE_SIZE)
            .max(range.start / PAGE_SIZE + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address_space::Permissions;

    #[test]
    fn what_is_forgotten_is_no_longer_watched() {
        let mut memory = AddressSpace::default();
        let page = |n: u64| 0x40_0000 + n * PAGE_SIZE;
        let range = page(0)..page(4);
        memory.map(range, Permissions::ALL).expect("free");
        let mut code = Code::new(Kind::Joined);
        code.blocks_max = 2;
        let (processor, mut library) = (Processor::default(), Library::new());
        let first = code.generation;
        let mut find = |code: &mut Code, memory: &mut AddressSpace, address| {
            code.find(memory, address, &processor, &mut library)
        };
        let ids = [0, 1, 2].map(|n| find(&mut code, &mut memory, page(n) + 8));
        assert_eq!(ids, [0, 1, 0]);
        assert_ne!(code.generation, first);
        let second = code.generation;
        assert_eq!(memory.store_bytes(page(0), [1]), Some(()));
        assert_eq!(memory.store_bytes(page(2), [1]), None);
        assert_eq!(find(&mut code, &mut memory, page(3)), 1);
        assert_eq!(code.generation, second);
    }
}
