//! Samples held back until their fate is decided, so that they come out in time order.

use std::collections::VecDeque;

use super::{Out, Stitch, Stitched, Why};

/// Bytes that a held sample costs besides its chain.
pub(super) const SLOT_BYTES: usize = size_of::<Slot>();

#[derive(Debug)]
struct Slot {
    id: u64,
    waiting: bool,
    stitched: Stitched,
}

impl Slot {
    fn bytes(&self) -> usize {
        SLOT_BYTES + size_of_val(&self.stitched.chain[..])
    }
}

/// The queue, in the order of arrival, which is that of time.
#[derive(Debug)]
pub(super) struct Held {
    slots: VecDeque<Slot>,
    next_id: u64,
    bytes: usize,
    bytes_max: usize,
}

impl Held {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            slots: VecDeque::new(),
            next_id: 0,
            bytes: 0,
            bytes_max,
        }
    }

    /// Takes a sample; if it waits, [`Held::settle`] ends that. Gives its id.
    pub(super) fn add(&mut self, stitched: Stitched, waiting: bool, out: &mut Out) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        if !waiting && self.slots.is_empty() {
            out.give(stitched);
            return id;
        }
        let slot = Slot {
            id,
            waiting,
            stitched,
        };
        self.bytes += slot.bytes();
        self.slots.push_back(slot);
        id
    }

    /// Decides the fate of a sample that waits; `change` sees it with its chain as recorded.
    /// Nothing happens if it was given up before.
    pub(super) fn settle(&mut self, id: u64, change: impl FnOnce(&mut Stitched)) {
        let Ok(place) = self.slots.binary_search_by_key(&id, |slot| slot.id) else {
            return;
        };
        let slot = &mut self.slots[place];
        self.bytes -= slot.bytes();
        slot.waiting = false;
        change(&mut slot.stitched);
        self.bytes += slot.bytes();
    }

    /// Gives out what is decided and has nothing waiting before it.
    pub(super) fn release(&mut self, out: &mut Out) {
        while self.slots.front().is_some_and(|slot| !slot.waiting) {
            let Some(slot) = self.slots.pop_front() else {
                break;
            };
            self.bytes -= slot.bytes();
            out.give(slot.stitched);
        }
    }

    /// Keeps within the bound: first the order is given up, then the older half of those that
    /// wait. Gives the id below which nothing waits any more, if some were given up.
    pub(super) fn bound(&mut self, out: &mut Out) -> Option<u64> {
        if self.bytes <= self.bytes_max {
            return None;
        }
        for slot in std::mem::take(&mut self.slots) {
            if slot.waiting {
                self.slots.push_back(slot);
            } else {
                out.give(slot.stitched);
            }
        }
        self.bytes = self.slots.iter().map(Slot::bytes).sum();
        if self.bytes <= self.bytes_max / 2 {
            return None;
        }
        let half = self.slots.len().div_ceil(2);
        for slot in self.slots.drain(..half) {
            let mut stitched = slot.stitched;
            without_user(&mut stitched, Why::GivenUp);
            out.give(stitched);
        }
        self.bytes = self.slots.iter().map(Slot::bytes).sum();
        Some(self.slots.front().map_or(self.next_id, |slot| slot.id))
    }
}

/// Leaves the kernel part only.
pub(super) fn without_user(stitched: &mut Stitched, why: Why) {
    if let Some(found) = super::deferral(&stitched.chain) {
        stitched.chain.truncate(found.kernel);
    }
    stitched.how = Stitch::Missing(why);
}

#[cfg(test)]
mod tests;
