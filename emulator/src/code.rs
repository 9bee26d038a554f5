//! Decoded code: basic blocks by start address. Not here: running them.

mod library;

pub(crate) use library::Library;

use crate::address_space::{AddressSpace, PAGE_SIZE};
use crate::isa::Fuser;
use crate::lower::lower;
use crate::op::{self, Op};
use crate::processor::Processor;
use hashbrown::HashMap;
use iced_x86::{Decoder, FlowControl, Instruction};
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
/// Length of the longest instruction, bytes.
const INSN_MAX: usize = 15;
/// The number of operations that nearly no block exceeds.
const USUAL_MAX: usize = 16;
/// The number of bytes that are fetched first: most blocks are shorter.
const FETCHED_FIRST: usize = 64;

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
    by_start: HashMap<u64, u32>,
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
        if self.blocks.len() >= self.blocks_max {
            self.clear();
            memory.unwatch_code();
        }

        library.suit(processor, self.kind);
        let mut bytes = CodeBytes::at(memory, address, BLOCK_MAX);
        let block = match library.find(address, &mut bytes) {
            Some(block) => block,
            None => {
                let is_kept = library.wants(address, bytes.fetched());
                let block = decode_bytes(&mut bytes, processor, self.kind, is_kept);
                library.add(&block);
                block
            }
        };

        memory.watch_code(block.start..block.end);
        let id = self.blocks.len() as u32;
        for page in pages(&(block.start..block.end)) {
            self.by_page.entry(page).or_default().push(id);
        }
        self.by_start.insert(address, id);
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
            self.clear();
            memory.unwatch_code();
        }
    }

    /// Forgets the blocks that overlap a range.
    pub(crate) fn forget(&mut self, range: &Range<u64>) {
        for page in pages(range) {
            let Some(ids) = self.by_page.get_mut(&page) else {
                continue;
            };
            let blocks = &mut self.blocks;
            let by_start = &mut self.by_start;
            ids.retain(|&id| {
                let block = &mut blocks[id as usize];
                let touched = block.start < range.end && range.start < block.end;
                if touched {
                    by_start.remove(&block.start);
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

/// The bytes of code at an address, fetched as they are needed.
struct CodeBytes<'m> {
    memory: &'m AddressSpace,
    address: u64,
    /// The number of instructions that they are for.
    insns_max: usize,
    buffer: [u8; INSN_MAX * BLOCK_MAX],
    fetched: usize,
    /// Whether nothing behind these can be fetched, or is needed.
    is_all: bool,
}

impl CodeBytes<'_> {
    /// Those of at most `insns_max` instructions at `address`.
    fn at(memory: &AddressSpace, address: u64, insns_max: usize) -> CodeBytes<'_> {
        let mut bytes = CodeBytes {
            memory,
            address,
            insns_max: insns_max.min(BLOCK_MAX),
            buffer: [0; INSN_MAX * BLOCK_MAX],
            fetched: 0,
            is_all: false,
        };
        bytes.fetch(FETCHED_FIRST);
        bytes
    }

    /// Those that were fetched.
    fn fetched(&self) -> &[u8] {
        &self.buffer[..self.fetched]
    }

    /// Fetches so many in all, or as many as can be.
    fn fetch(&mut self, count: usize) {
        let most = INSN_MAX * self.insns_max;
        let count = count.min(most);
        if self.is_all || count <= self.fetched {
            return;
        }
        let at = self.address.wrapping_add(self.fetched as u64);
        let new = fetch(self.memory, at, &mut self.buffer[self.fetched..count]);
        self.fetched += new;
        self.is_all = self.fetched < count || count == most;
    }
}

/// Decodes at most `max` instructions at `address`. There is always at least one operation: if the
/// first instruction cannot be fetched, the operation raises the fault.
pub(crate) fn decode(
    memory: &AddressSpace,
    address: u64,
    max: usize,
    processor: &Processor,
    kind: Kind,
) -> Block {
    let mut code = CodeBytes::at(memory, address, max);
    decode_bytes(&mut code, processor, kind, false)
}

/// Decodes a block from its bytes, which it keeps if it is to be shared.
fn decode_bytes(
    code: &mut CodeBytes<'_>,
    processor: &Processor,
    kind: Kind,
    is_kept: bool,
) -> Block {
    let address = code.address;
    // Nearly all blocks are shorter.
    let mut ops = Vec::with_capacity(USUAL_MAX);
    let mut joined = Vec::new();
    let mut fuser = Fuser::default();
    let mut count = 0;
    let mut done = 0;

    // Whether the same bytes are always the same block, whatever is behind them.
    let mut is_whole = false;
    let mut insn = Instruction::default();

    'block: loop {
        // Anew where more bytes were fetched.
        let bytes = code.fetched();
        let at = address.wrapping_add(done as u64);
        let mut decoder = Decoder::with_ip(64, &bytes[done..], at, processor.decoder_options());

        loop {
            if count == code.insns_max as u32 {
                is_whole = true;
                break 'block;
            }
            let rest = &bytes[done..];
            if rest.len() < INSN_MAX && !code.is_all {
                break;
            }
            // Nothing can be fetched here. The next block starts with the fault.
            if rest.is_empty() && count > 0 {
                break 'block;
            }

            decoder.decode_out(&mut insn);
            let cut = insn.is_invalid() && rest.len() < INSN_MAX;
            if cut && count > 0 {
                // The next block finds out whether the rest of it can be fetched.
                break 'block;
            }

            count += 1;

            // The fault is at the first byte that cannot be fetched, not at the instruction's start.
            let behind = address.wrapping_add((done + rest.len()) as u64);
            if cut && code.memory.fetch(behind, &mut [0]).is_err() {
                ops.push(Op {
                    run: op::unfetchable,
                    disp: behind,
                    len: 1,
                    ..EMPTY
                });
                done += rest.len().max(1);
                break 'block;
            }

            let before = ops.len();
            let length = lower(&insn, rest, address, processor, &mut ops);
            match kind {
                Kind::Single => {}
                Kind::Joined => fuser.add(&insn, address, &mut ops),
                Kind::Both => {
                    joined.extend_from_slice(&ops[before..]);
                    fuser.add(&insn, address, &mut joined);
                }
            }
            done += length as usize;

            // A block is left only at its end, or by a fault.
            if insn.is_invalid() || insn.flow_control() != FlowControl::Next || ends(&insn) {
                is_whole = !insn.is_invalid();
                break 'block;
            }
        }

        code.fetch(2 * code.fetched);
    }

    if kind != Kind::Both || joined.len() == ops.len() {
        joined.clear();
    }
    let mut detail = joined_at(&joined, ops.len());
    if is_kept
        && is_whole
        && let Some(bytes) = code.fetched().get(..done.max(library::HEAD))
    {
        detail.extend_from_slice(bytes);
    }
    Block {
        start: address,
        end: address.wrapping_add(done as u64),
        count,
        next: [NONE; 2],
        ops: ops.into(),
        joined: list(joined),
        detail: list(detail),
    }
}

/// A list that others can have, too. If there is nothing in it, it needs no memory.
fn list<T>(all: Vec<T>) -> Arc<[T]> {
    if all.is_empty() {
        Arc::default()
    } else {
        all.into()
    }
}

/// The number of joined operations before each of `count` single ones, and before their end.
fn joined_at(joined: &[Op], count: usize) -> Vec<u8> {
    if joined.is_empty() {
        return Vec::new();
    }
    let mut all = vec![INSIDE; count + 1];
    let mut single = 0;
    for (number, op) in (0..INSIDE).zip(joined) {
        all[single] = number;
        // A joined one stands for operations that are instructions by themselves.
        single += 1 + usize::from(op.more);
    }
    all[single] = joined.len() as u8;
    all
}

/// Whether the block ends after an instruction that does not branch: a repeated one, which can be
/// interrupted in the middle.
fn ends(insn: &Instruction) -> bool {
    insn.has_rep_prefix() || insn.has_repne_prefix()
}

const EMPTY: Op = Op {
    run: op::invalid,
    disp: 0,
    imm: 0,
    offset: 0,
    base: 0,
    index: 0,
    scale: 0,
    dst: 0,
    src: 0,
    len: 0,
    extra: 0,
    more: 0,
};

/// Fetches instruction bytes at `address`, as many as possible.
fn fetch(memory: &AddressSpace, address: u64, buffer: &mut [u8]) -> usize {
    let mut done = 0;
    while done < buffer.len() {
        let at = address.wrapping_add(done as u64);
        let count = ((PAGE_SIZE - at % PAGE_SIZE) as usize).min(buffer.len() - done);
        if memory.fetch(at, &mut buffer[done..done + count]).is_err() {
            break;
        }
        done += count;
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address_space::Permissions;

    /// #GP, not #UD: these bytes go on for longer than an instruction can.
    #[test]
    fn prefixes_alone_are_too_long() {
        let mut memory = AddressSpace::default();
        let range = 0x40_0000..0x40_1000;
        memory.map(range.clone(), Permissions::ALL).expect("free");
        memory.poke(range.start, &[0x2e; 15]).expect("mapped");
        let block = decode(
            &memory,
            range.start,
            BLOCK_MAX,
            &Processor::default(),
            Kind::Joined,
        );
        assert_eq!(
            block.ops[0].run as usize,
            op::too_long as *const () as usize
        );
    }

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
