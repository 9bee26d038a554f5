//! Decoded code: basic blocks by start address. Not here: running them.

use crate::address_space::{AddressSpace, PAGE_SIZE};
use crate::isa::Fuser;
use crate::lower::lower;
use crate::op::{self, Op};
use crate::processor::Processor;
use hashbrown::HashMap;
use iced_x86::{Decoder, FlowControl, Instruction};
use std::ops::Range;
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
    pub(crate) ops: Box<[Op]>,
    /// The same as joined operations; empty if none can be joined, or nobody observes the block.
    joined: Box<[Op]>,
    /// For each of `ops` and the end, the number of joined operations before it; [`INSIDE`] where one
    /// of them goes on.
    joined_at: Box<[u8]>,
}

/// Within a joined operation.
const INSIDE: u8 = u8::MAX;

impl Block {
    /// The joined operations that are those of `range`, if there are any. They can begin and end only
    /// between two joined operations.
    #[inline(always)]
    pub(crate) fn joined(&self, range: &Range<usize>) -> Option<&[Op]> {
        let start = *self.joined_at.get(range.start)?;
        let end = *self.joined_at.get(range.end)?;
        if start == INSIDE || end == INSIDE {
            return None;
        }
        self.joined.get(start.into()..end.into())
    }

    /// The index in `ops` of the first operation of the joined one that is `count` behind the start of
    /// a range.
    #[cold]
    pub(crate) fn single(&self, range: &Range<usize>, count: usize) -> usize {
        let start = self
            .joined_at
            .get(range.start)
            .map_or(0, |&at| usize::from(at));
        let at = self
            .joined_at
            .iter()
            .position(|&at| usize::from(at) == start + count);
        at.unwrap_or(range.start)
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
            None => self.decode(memory, address, processor),
        };
        self.recent[slot] = id;
        id
    }

    #[cold]
    fn decode(&mut self, memory: &mut AddressSpace, address: u64, processor: &Processor) -> u32 {
        if self.blocks.len() >= self.blocks_max {
            self.clear();
            memory.unwatch_code();
        }
        let block = decode(memory, address, BLOCK_MAX, processor, self.kind);
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
                    block.ops = Box::default();
                    block.joined = Box::default();
                    block.joined_at = Box::default();
                }
                !touched && block.start != GONE
            });
        }
    }

    /// Heap bytes of all decoded code.
    pub(crate) fn bytes(&self) -> usize {
        let bytes =
            |b: &Block| size_of_val(&*b.ops) + size_of_val(&*b.joined) + size_of_val(&*b.joined_at);
        let ops: usize = self.blocks.iter().map(bytes).sum();
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

/// Decodes at most `max` instructions at `address`. There is always at least one operation: if the
/// first instruction cannot be fetched, the operation raises the fault.
pub(crate) fn decode(
    memory: &AddressSpace,
    address: u64,
    max: usize,
    processor: &Processor,
    kind: Kind,
) -> Block {
    let mut buffer = [0; INSN_MAX * BLOCK_MAX];
    let mut ops = Vec::new();
    let mut joined = Vec::new();
    let mut fuser = Fuser::default();
    let mut count = 0;
    let mut end = address;

    // As many bytes as a block can have, or as can be fetched.
    let available = fetch(
        memory,
        address,
        &mut buffer[..INSN_MAX * max.min(BLOCK_MAX)],
    );
    let bytes = &buffer[..available];

    let mut decoder = Decoder::with_ip(64, bytes, address, processor.decoder_options());
    let mut insn = Instruction::default();

    while count < max as u32 {
        let rest = &bytes[(end - address) as usize..];
        // Nothing can be fetched here. The next block starts with the fault.
        if rest.is_empty() && count > 0 {
            break;
        }

        decoder.decode_out(&mut insn);
        let cut = insn.is_invalid() && rest.len() < INSN_MAX;
        if cut && count > 0 {
            // The next block finds out whether the rest of it can be fetched.
            break;
        }

        count += 1;

        // The fault is at the first byte that cannot be fetched, not at the instruction's start.
        if cut
            && memory
                .fetch(end.wrapping_add(rest.len() as u64), &mut [0])
                .is_err()
        {
            ops.push(Op {
                run: op::unfetchable,
                disp: end.wrapping_add(rest.len() as u64),
                len: 1,
                ..EMPTY
            });
            end = end.wrapping_add(rest.len().max(1) as u64);
            break;
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
        end = end.wrapping_add(length);

        // A block is left only at its end, or by a fault.
        if insn.is_invalid() || insn.flow_control() != FlowControl::Next || ends(&insn) {
            break;
        }
    }

    if kind != Kind::Both || joined.len() == ops.len() {
        joined.clear();
    }
    Block {
        start: address,
        end,
        count,
        next: [NONE; 2],
        joined_at: joined_at(&joined, ops.len()),
        joined: joined.into_boxed_slice(),
        ops: ops.into_boxed_slice(),
    }
}

/// The number of joined operations before each of `count` single ones, and before their end.
fn joined_at(joined: &[Op], count: usize) -> Box<[u8]> {
    if joined.is_empty() {
        return Box::default();
    }
    let mut all = vec![INSIDE; count + 1];
    let mut single = 0;
    for (number, op) in (0..INSIDE).zip(joined) {
        all[single] = number;
        // A joined one stands for operations that are instructions by themselves.
        single += 1 + usize::from(op.more);
    }
    all[single] = joined.len() as u8;
    all.into_boxed_slice()
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
        let processor = Processor::default();
        let ids = [0, 1, 2].map(|n| code.find(&mut memory, page(n) + 8, &processor));
        assert_eq!((ids, code.generation), ([0, 1, 0], 1));
        assert_eq!(memory.store_bytes(page(0), [1]), Some(()));
        assert_eq!(memory.store_bytes(page(2), [1]), None);
        assert_eq!(code.find(&mut memory, page(3), &processor), 1);
        assert_eq!(code.generation, 1);
    }
}
