//! The spaces of a memory: one for each process. One runs, the others rest.

use super::AddressSpace;
use super::area::{Area, PagesInUse};
use super::fault::{Access, Fault, FaultKind};
use super::ids::SpaceId;
use super::limits::MMAP_MIN_ADDR;
use super::space::Space;
use super::table::NodeCopies;
use std::collections::BTreeMap;
use std::ops::Range;

/// The spaces that rest.
pub(super) type InactiveSpaces = BTreeMap<SpaceId, Space>;

impl AddressSpace {
    /// The space that runs.
    pub fn id(&self) -> SpaceId {
        self.id
    }

    /// All spaces, ascending.
    pub fn spaces(&self) -> impl Iterator<Item = SpaceId> {
        let before = self.resting.range(..self.id).map(|(&id, _)| id);
        let after = self.resting.range(self.id..).map(|(&id, _)| id);
        before.chain([self.id]).chain(after)
    }

    /// Names the decoded code that belongs to the running space.
    pub(crate) fn code_stamp(&self) -> u64 {
        self.own.watch.stamp
    }

    /// The stamps of all spaces.
    pub(crate) fn code_stamps(&self) -> impl Iterator<Item = u64> {
        let resting = self.resting.values().map(|space| space.watch.stamp);
        resting.chain([self.own.watch.stamp])
    }

    pub(super) fn take_number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Copies the running space; the copy rests. The cost does not depend on the size of memory: a
    /// page is copied when one of the two writes to it. Mapped objects stay shared.
    pub fn fork(&mut self) -> SpaceId {
        let (id, stamp) = (SpaceId(self.take_number()), self.take_number());
        let space = self.own.fork(stamp, &mut self.objects);
        self.resting.insert(id, space);
        // So that the next store to each page takes the slow path.
        self.tlb.flush_writes();
        id
    }

    /// Creates an empty space, which rests.
    pub fn create(&mut self) -> SpaceId {
        let (id, stamp) = (SpaceId(self.take_number()), self.take_number());
        self.resting.insert(id, Space::new(MMAP_MIN_ADDR, stamp));
        id
    }

    /// Runs another space from here on. Returns false, and changes nothing, if there is none with
    /// this id.
    pub fn switch_to(&mut self, id: SpaceId) -> bool {
        if id == self.id {
            return true;
        }
        let Some(space) = self.resting.remove(&id) else {
            return false;
        };
        let before = std::mem::replace(&mut self.own, space);
        self.resting.insert(self.id, before);
        self.id = id;
        self.refusal = None;
        self.tlb.flush();
        self.own.watch.check(&self.frames);
        true
    }

    /// Drops a space that rests, and its pages. Returns false if none with this id rests.
    pub fn remove_space(&mut self, id: SpaceId) -> bool {
        let removed = self.resting.remove(&id);
        let is_removed = removed.is_some();
        if let Some(space) = removed {
            space.release(&mut self.frames, &mut self.objects);
        }
        is_removed
    }

    /// Calls `f` while another space runs. `None` if there is none with this id.
    pub fn with_space<T>(
        &mut self,
        id: SpaceId,
        f: impl FnOnce(&mut AddressSpace) -> T,
    ) -> Option<T> {
        let before = self.id;
        if !self.switch_to(id) {
            return None;
        }
        let done = f(self);
        self.switch_to(before);
        Some(done)
    }

    /// Like [`AddressSpace::areas`], of any space; none if there is none with this id.
    pub fn areas_in(&self, id: SpaceId) -> impl Iterator<Item = (Range<u64>, &Area)> {
        let space = if id == self.id {
            Some(&self.own)
        } else {
            self.resting.get(&id)
        };
        space.into_iter().flat_map(|space| space.areas.iter())
    }

    /// The pages of an area of a space that are in use.
    pub fn pages_in(&self, id: SpaceId, range: &Range<u64>, area: &Area) -> PagesInUse {
        let space = if id == self.id {
            Some(&self.own)
        } else {
            self.resting.get(&id)
        };
        space.map_or_else(PagesInUse::default, |space| {
            space.pages_in(range, area, &self.objects)
        })
    }

    /// Like [`AddressSpace::peek`], in any space.
    ///
    /// # Errors
    /// The fault at the first byte that is not mapped; so are all if there is no space with this id.
    pub fn peek_in(&self, id: SpaceId, address: u64, buf: &mut [u8]) -> Result<(), Fault> {
        if id == self.id {
            return self.peek(address, buf);
        }
        let space = self.resting.get(&id).ok_or(Fault {
            address,
            access: Access::Read,
            kind: FaultKind::Unmapped,
        })?;
        space.load(&self.frames, &self.objects, address, buf, None)
    }
}

/// A copy of all spaces, under the same ids. It has no snapshots.
impl Clone for AddressSpace {
    fn clone(&self) -> Self {
        let mut copies = NodeCopies::default();
        let resting = self.resting.iter();
        AddressSpace {
            id: self.id,
            own: self.own.copy(&mut copies),
            resting: resting
                .map(|(&id, space)| (id, space.copy(&mut copies)))
                .collect(),
            next: self.next,
            frames: self.frames.clone(),
            objects: self.objects.copy(&mut copies),
            tlb: self.tlb.clone(),
            refusal: self.refusal.clone(),
            code_writable: self.code_writable,
            guard: self.guard,
            paging: self.paging.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
