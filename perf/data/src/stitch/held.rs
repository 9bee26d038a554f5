//! Buffers samples until they are settled, so that they are delivered in time order.

use std::collections::VecDeque;

use super::{DeliveredSamples, MissingReason, Stitch, Stitched};

/// Size of a buffered sample without its chain, bytes.
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

/// The queue, in order of arrival, which is time order.
#[derive(Debug)]
pub(super) struct SampleQueue {
    slots: VecDeque<Slot>,
    next_id: u64,
    bytes: usize,
    bytes_max: usize,
}

impl SampleQueue {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            slots: VecDeque::new(),
            next_id: 0,
            bytes: 0,
            bytes_max,
        }
    }

    /// Adds a sample and returns its ID. A waiting sample stays until [`SampleQueue::settle`].
    pub(super) fn add(
        &mut self,
        stitched: Stitched,
        waiting: bool,
        out: &mut DeliveredSamples,
    ) -> u64 {
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

    /// Settles a waiting sample; `change` gets it with its chain as recorded. Does nothing if it
    /// was given up before.
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

    /// Delivers settled samples that have no waiting sample before them.
    pub(super) fn release(&mut self, out: &mut DeliveredSamples) {
        while self.slots.front().is_some_and(|slot| !slot.waiting) {
            let Some(slot) = self.slots.pop_front() else {
                break;
            };
            self.bytes -= slot.bytes();
            out.give(slot.stitched);
        }
    }

    /// Enforces the limit: first delivers settled samples out of order, then gives up the older
    /// half of the waiting ones. If some were given up, returns the ID below which none is waiting
    /// any more.
    pub(super) fn bound(&mut self, out: &mut DeliveredSamples) -> Option<u64> {
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
            without_user(&mut stitched, MissingReason::GivenUp);
            out.give(stitched);
        }
        self.bytes = self.slots.iter().map(Slot::bytes).sum();
        Some(self.slots.front().map_or(self.next_id, |slot| slot.id))
    }
}

/// Removes all but the kernel part.
pub(super) fn without_user(stitched: &mut Stitched, why: MissingReason) {
    if let Some(found) = super::deferral(&stitched.chain) {
        stitched.chain.truncate(found.kernel);
    }
    stitched.how = Stitch::Missing(why);
}

#[cfg(test)]
mod tests;
