//! Decodes basic blocks from their bytes.

use super::{BLOCK_MAX, Block, INSIDE, Kind, NONE, library};
use crate::address_space::{AddressSpace, PAGE_SIZE};
use crate::isa::Fuser;
use crate::lower::lower;
use crate::op::{self, Op};
use crate::processor::Processor;
use iced_x86::{Decoder, FlowControl, Instruction};
use std::sync::Arc;

/// Length of the longest instruction, bytes.
const INSN_MAX: usize = 15;
/// The number of operations that nearly no block exceeds.
const USUAL_MAX: usize = 16;
/// The number of bytes that are fetched first: most blocks are shorter.
const FETCHED_FIRST: usize = 64;

/// The bytes of code at an address, fetched as they are needed.
pub(super) struct CodeBytes<'m> {
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
    pub(super) fn at(memory: &AddressSpace, address: u64, insns_max: usize) -> CodeBytes<'_> {
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
    pub(super) fn fetched(&self) -> &[u8] {
        &self.buffer[..self.fetched]
    }

    /// Fetches so many in all, or as many as can be.
    pub(super) fn fetch(&mut self, count: usize) {
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
pub(super) fn decode_bytes(
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
}
