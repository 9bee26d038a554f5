//! The blocks that were met in one address space: which block of [`Code`] each is, and what is noted of it
//! there.

use super::{Code, Head, Known};
use crate::verify::blocks::PlaceOf;
use crate::verify::findings::Confirmed;
use crate::verify::memory::list_bytes;
use crate::verify::numbered::{NONE, grow_tight, push_tight};
use crate::verify::repeats::Key;
use std::ops::Range;
use unwind_sim_emulator::AddressSpace;
use unwind_sim_emulator::machine::BlockId;

/// A block that was met.
#[derive(Clone, Copy)]
pub(super) struct MetBlock {
    /// Its index in [`Code::heads`]; [`NONE`] if it was not met.
    at: u32,
    /// What was wrong in the run that begins there, the last time that this was looked up.
    key: Key,
    /// The repeat with which that is counted.
    repeat: u32,
    /// What is there, as soon as the run that begins there is known: all that is needed of most blocks
    /// lies together.
    pub(super) head: Head,
}

impl MetBlock {
    /// A block of which no repeat is known.
    const fn new(at: u32, head: Head) -> MetBlock {
        MetBlock {
            at,
            key: Key::TOO_MANY,
            repeat: NONE,
            head,
        }
    }
}

/// The instructions that were met in one address space, with its current images. When these change, all
/// but the generation is forgotten ([`Code::clear`]). The current block is the one that was entered last.
pub(in crate::verify) struct Met {
    /// By block number.
    pub(super) blocks: Vec<MetBlock>,
    /// The number of the current block; [`NONE`] for an instruction by itself.
    pub(super) number: u32,
    /// The index of the current block in [`Code::heads`].
    pub(super) head: u32,
    /// The index of its first instruction in [`Code::instructions`].
    pub(super) current: u32,
    /// The number of its operations.
    pub(super) operations: u32,
    /// Whether that is an instruction by itself.
    pub(super) is_single: bool,
    pub(super) generation: u64,
    pub(super) confirmed: Confirmed,
    /// The repeats whose outcomes are all among these.
    pub(super) repeats: Confirmed,
    /// By number in [`Code::returns`], a bit for each call that was executed.
    pub(super) called: Vec<u64>,
}

impl Default for Met {
    fn default() -> Met {
        Met {
            blocks: Vec::new(),
            number: NONE,
            head: NONE,
            current: NONE,
            operations: 0,
            is_single: false,
            generation: 0,
            confirmed: Confirmed::default(),
            repeats: Confirmed::default(),
            called: Vec::new(),
        }
    }
}

impl Met {
    /// Whether the current block is an instruction by itself.
    pub(in crate::verify) fn is_single(&self) -> bool {
        self.is_single
    }

    /// The heap memory used, in bytes.
    pub(in crate::verify) fn bytes(&self) -> usize {
        let sets = self.confirmed.bytes() + self.repeats.bytes();
        list_bytes(&self.blocks) + sets + list_bytes(&self.called)
    }
}

impl Code {
    /// Starts a block. Returns false if it was not met in this address space: see
    /// [`Code::enter_new`].
    #[inline]
    #[must_use]
    pub(in crate::verify) fn enter(&mut self, block: Option<BlockId>, operations: usize) -> bool {
        if let Some(id) = block
            && id.generation == self.met.generation
            && let Some(met) = self.met.blocks.get_mut(id.number as usize)
            && met.at != NONE
        {
            if met.head.len == 0 {
                met.head = self.heads[met.at as usize];
            }
            self.met.number = id.number;
            self.met.head = met.at;
            self.met.current = met.head.start;
            self.met.operations = operations as u32;
            self.met.is_single = false;
            return true;
        }
        false
    }

    /// Starts a block of code at `range` that was not met in this address space.
    pub(in crate::verify) fn enter_new(
        &mut self,
        memory: &AddressSpace,
        block: Option<BlockId>,
        range: Range<u64>,
        operations: usize,
        place_of: &mut PlaceOf<'_>,
    ) {
        // The decoder has thrown its blocks away and counts them anew, so their numbers mean other
        // code.
        if let Some(id) = block
            && id.generation != self.met.generation
        {
            self.clear();
            self.met.generation = id.generation;
        }

        let operations_of = (operations, block.is_none());
        // By its bytes and its place: what another process has found of the same code holds here,
        // too.
        let key = self.blocks.key(memory, range, operations_of, place_of);
        let known = self.blocks.get(&key).unwrap_or_else(|| {
            let at = self.add_block(operations);
            self.blocks.insert(key, at);
            at
        });

        let met = &mut self.met;
        met.head = known;
        met.current = self.heads[known as usize].start;
        met.operations = operations as u32;
        met.is_single = block.is_none();
        met.number = block.map_or(NONE, |id| id.number);

        let Some(id) = block else { return };
        let number = id.number as usize;
        if met.blocks.len() <= number {
            let unmet = MetBlock::new(NONE, Head::at(NONE));
            grow_tight(&mut met.blocks, number + 1, unmet);
        }
        met.blocks[number] = MetBlock::new(known, self.heads[known as usize]);
    }

    /// Adds a block of so many operations, of which nothing is known. Returns its index.
    fn add_block(&mut self, operations: usize) -> u32 {
        let start = self.instructions.len();
        grow_tight(&mut self.instructions, start + operations, Known::NOTHING);
        grow_tight(&mut self.findings, start + operations, NONE);
        let at = self.heads.len() as u32;
        push_tight(&mut self.heads, Head::at(start as u32));
        at
    }

    /// The repeat of the run that begins with the current block, if it was noted for what `key` says is
    /// wrong.
    #[inline]
    pub(in crate::verify) fn noted_repeat(&self, key: Key) -> Option<u32> {
        let met = self.met.blocks.get(self.met.number as usize)?;
        (met.key == key && met.repeat != NONE).then_some(met.repeat)
    }

    /// Notes the repeat of the run that begins with the current block, if it can be counted in this
    /// address space. Returns whether it can.
    pub(in crate::verify) fn note_repeat(&mut self, key: Key, repeat: u32) -> bool {
        let can_repeat = self.met.repeats.contains(repeat);
        if can_repeat && let Some(met) = self.met.blocks.get_mut(self.met.number as usize) {
            (met.key, met.repeat) = (key, repeat);
        }
        can_repeat
    }

    /// Records that the call with return address number `behind` was executed. Returns whether it
    /// is the first time since the images have changed.
    pub(in crate::verify) fn call(&mut self, behind: u32) -> bool {
        if self.returns.len() <= behind as usize {
            return false;
        }
        let called = &mut self.met.called;
        let (word, bit) = (behind as usize / 64, 1 << (behind % 64));
        if called.len() <= word {
            grow_tight(called, word + 1, 0);
        }
        let is_first = called[word] & bit == 0;
        called[word] |= bit;
        is_first
    }
}
