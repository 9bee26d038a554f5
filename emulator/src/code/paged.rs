//! Finds decoded code in system mode, where page tables say what is at an address: a block belongs to the
//! physical memory that it was decoded from.

use super::{Block, Code, GONE, RECENT};
use crate::address_space::{AddressSpace, Fault, PAGE_SIZE};
use crate::code::library::Library;
use crate::op;
use crate::processor::Processor;

/// Where a block is in physical memory, and when that was last found out.
#[derive(Clone, Copy, Debug)]
pub(super) struct PhysicalPlace {
    /// The physical address of its start.
    pub(super) first: u64,
    /// The physical address of the second page that it is in, if there is one.
    second: Option<u64>,
    /// What [`AddressSpace::translation_epoch`] was when its addresses were last translated.
    epoch: (u32, bool),
}

/// The key of a block in [`Code::by_start`]. Another block may have the same one.
pub(super) fn key(address: u64, first: u64) -> u64 {
    address ^ first.rotate_left(25)
}

impl Code {
    /// Whether the addresses of a block still mean the memory that it was decoded from, for the mode that
    /// runs.
    #[inline(always)]
    pub(crate) fn is_current(&self, id: u32, memory: &AddressSpace) -> bool {
        let place = self.places.get(id as usize);
        place.is_some_and(|place| place.epoch == memory.translation_epoch())
    }

    /// The block that starts at a virtual address; decoded if it is not known.
    ///
    /// # Errors
    /// If its first instruction cannot be fetched.
    #[inline]
    pub(crate) fn find_paged(
        &mut self,
        memory: &mut AddressSpace,
        address: u64,
        processor: &Processor,
        library: &mut Library,
    ) -> Result<u32, Fault> {
        let slot = (address ^ address >> 12) as usize % RECENT;
        let id = self.recent[slot];
        if let Some(block) = self.blocks.get(id as usize)
            && block.start == address
            && self.is_current(id, memory)
        {
            return Ok(id);
        }
        let id = self.find_physical(memory, address, processor, library)?;
        self.recent[slot] = id;
        Ok(id)
    }

    fn find_physical(
        &mut self,
        memory: &mut AddressSpace,
        address: u64,
        processor: &Processor,
        library: &mut Library,
    ) -> Result<u32, Fault> {
        let first = memory.translate_code(address)?;
        let epoch = memory.translation_epoch();
        let key = key(address, first);
        let known = self.by_start.get(&key).copied().filter(|&id| {
            let is_it = self.blocks[id as usize].start == address;
            is_it && self.places[id as usize].first == first
        });
        if let Some(id) = known {
            let second = match self.places[id as usize].second {
                None => None,
                Some(_) => Some(memory.translate_code(next_page(address))?),
            };
            let place = &mut self.places[id as usize];
            if place.second == second {
                place.epoch = epoch;
                return Ok(id);
            }
            // Its second page is another one now.
            self.blocks[id as usize].start = GONE;
            self.by_start.remove(&key);
        }

        self.make_room(memory);
        let block = self.decode(memory, address, processor, library);
        if let Some(beyond) = unfetchable(&block) {
            memory.translate_code(beyond)?;
        }
        let second = match next_page(address) < block.end {
            true => Some(memory.translate_code(next_page(address))?),
            false => None,
        };
        let pages = [Some(first), second].into_iter().flatten();
        memory.watch_frames(pages.clone());
        let id = self.insert(block, key, pages.map(|at| at / PAGE_SIZE));
        self.places.push(PhysicalPlace {
            first,
            second,
            epoch,
        });
        Ok(id)
    }
}

fn next_page(address: u64) -> u64 {
    (address - address % PAGE_SIZE).wrapping_add(PAGE_SIZE)
}

/// The address of the first byte that could not be fetched, if the first instruction goes on there.
fn unfetchable(block: &Block) -> Option<u64> {
    let op = block.ops.first()?;
    std::ptr::fn_addr_eq(op.run, op::unfetchable as op::Run).then_some(op.disp)
}
