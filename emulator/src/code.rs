//! Decoded code: basic blocks by their first address. Not here: running them.

use crate::address_space::{AddressSpace, PAGE_SIZE};
use crate::lower::lower;
use crate::op::{self, Op};
use crate::processor::Processor;
use hashbrown::HashMap;
use iced_x86::{Decoder, FlowControl, Instruction};
use std::ops::Range;

/// Most instructions of a block.
const BLOCK_MAX: usize = 64;
/// Most blocks; then all are forgotten.
const BLOCKS_MAX: usize = 1 << 20;
/// Entries of the table of recent targets; a power of two.
const RECENT: usize = 4096;
/// No block.
pub(crate) const NONE: u32 = u32::MAX;
/// Where blocks begin that were forgotten: no canonical address.
const GONE: u64 = 1 << 63;
/// The longest instruction.
const INSN_MAX: usize = 15;

/// Consecutive instructions of which only the last may go elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Instructions; operations are as many or more.
    pub(crate) count: u32,
    /// Where it went last by falling through, and by a jump.
    pub(crate) next: [u32; 2],
    pub(crate) ops: Box<[Op]>,
}

/// All blocks that were decoded.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    pub(crate) blocks: Vec<Block>,
    by_start: HashMap<u64, u32>,
    /// Block numbers by the page they lie in; a block may lie in two.
    by_page: HashMap<u64, Vec<u32>>,
    /// By a part of the address.
    recent: Box<[u32; RECENT]>,
    /// Counts up whenever block numbers lose their meaning.
    pub(crate) generation: u64,
}

impl Code {
    pub(crate) fn new() -> Code {
        Code {
            blocks: Vec::new(),
            by_start: HashMap::new(),
            by_page: HashMap::new(),
            recent: Box::new([NONE; RECENT]),
            generation: 0,
        }
    }

    /// The block that begins at `address`, decoded if it is not known.
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
        if self.blocks.len() >= BLOCKS_MAX {
            self.clear();
        }
        let block = decode(memory, address, BLOCK_MAX, processor);
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
        let generation = self.generation + 1;
        *self = Code::new();
        self.generation = generation;
    }

    /// Forgets the blocks that a range touches.
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
                }
                !touched && block.start != GONE
            });
        }
    }

    /// Heap bytes of all that is kept for decoded code.
    pub(crate) fn bytes(&self) -> usize {
        let ops: usize = self.blocks.iter().map(|b| size_of_val(&*b.ops)).sum();
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

/// Decodes at most `max` instructions from `address` on. There is at least one operation: that
/// which raises what fetching the first instruction does.
pub(crate) fn decode(
    memory: &AddressSpace,
    address: u64,
    max: usize,
    processor: &Processor,
) -> Block {
    let mut buffer = [0; INSN_MAX * BLOCK_MAX];
    let mut ops = Vec::new();
    let mut count = 0;
    let mut end = address;
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
        lower(&insn, rest, address, processor, &mut ops);
        end = end.wrapping_add(insn.len() as u64);
        if insn.is_invalid() || insn.flow_control() != FlowControl::Next || ends(&insn) {
            break;
        }
    }
    ops.shrink_to_fit();
    Block {
        start: address,
        end,
        count,
        next: [NONE; 2],
        ops: ops.into_boxed_slice(),
    }
}

/// Does a block end with it although control goes on behind it? What can be interrupted in the
/// middle, and what changes how the rest is to be run.
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
};

/// Instruction bytes from `address` on, as many as can be fetched.
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
