//! The memory of the machine: 47-bit addresses, 4 KiB pages, permissions.
//!
//! A memory has one or more *spaces*, one for each process. One of them runs, and is what the
//! methods of [`AddressSpace`] mean; the others rest (`spaces`). All of them share one pool of
//! frames (`frames`): a copy of a space shares its pages until one of the two writes to them, and
//! *objects* (`objects`) are memory that several mappings show.
//!
//! An area costs nothing until it is used: a page of a file is read when it is needed (`content`),
//! any other is zero. Memory that the machine reads or writes gets a frame, which it finds again
//! through a table of recent translations (`fast`). Not here: the loader and the system calls that
//! ask for memory.

use std::ops::Range;

mod area;
mod changes;
mod content;
mod difference;
mod fast;
mod fault;
mod frames;
mod history;
mod ids;
mod limits;
mod objects;
mod paging;
mod shared;
mod snapshot;
mod space;
mod spaces;
mod table;
#[cfg(test)]
mod tests;
mod watch;

pub use area::{Area, PagesInUse};
pub use content::{Content, PageMissing, Source};
pub use difference::Difference;
pub use fast::{Guard, Refusal};
pub use fault::{Access, Fault, FaultKind, MapError, Permissions};
pub use history::{HISTORY_BYTES_MAX, RestoreError};
pub use ids::{MemoryKey, ObjectId, SpaceId};
pub use limits::{AREAS_MAX, MMAP_MIN_ADDR, PAGE_SIZE, PAGES_MAX, TASK_SIZE};
pub(crate) use paging::SavedPaging;
pub(crate) use paging::{Controls, PHYSICAL_BITS, Paging};
pub use shared::ObjectError;
pub use snapshot::Snapshot;
pub use space::Change;

use area::Backing;
use fast::Tlb;
use frames::Frames;
use objects::Objects;
use space::Space;
use spaces::InactiveSpaces;

/// The memory of the machine.
#[derive(Debug)]
pub struct AddressSpace {
    id: SpaceId,
    /// The space that runs.
    own: Space,
    resting: InactiveSpaces,
    /// The number of the next space, object or stamp.
    next: u64,
    frames: Frames,
    objects: Objects,
    tlb: Tlb,
    /// Why the machine's last access was refused.
    refusal: Option<Refusal>,
    /// Stores to decoded instructions are not refused.
    code_writable: bool,
    /// Where stores are refused.
    guard: Guard,
    /// In system mode: the page tables. The space that runs has no areas then.
    paging: Option<Box<Paging>>,
}

impl Default for AddressSpace {
    fn default() -> Self {
        AddressSpace::new(PAGES_MAX)
    }
}

impl AddressSpace {
    /// One empty space, and room for `pages_max` pages, shared ones counted once.
    pub fn new(pages_max: usize) -> AddressSpace {
        AddressSpace {
            id: SpaceId(0),
            own: Space::new(MMAP_MIN_ADDR, 1),
            resting: InactiveSpaces::default(),
            next: 2,
            frames: Frames::new(pages_max),
            objects: Objects::default(),
            tlb: Tlb::default(),
            refusal: None,
            code_writable: false,
            guard: Guard::NONE,
            paging: None,
        }
    }

    /// Like [`AddressSpace::default`], for code without a kernel: address 0 can be mapped too.
    pub fn bare() -> AddressSpace {
        let mut memory = AddressSpace::default();
        memory.own.lowest = 0;
        memory
    }

    /// All areas with their address ranges, ascending.
    pub fn areas(&self) -> impl Iterator<Item = (Range<u64>, &Area)> {
        self.own.areas.iter()
    }

    /// The area that holds `address`.
    pub fn area(&self, address: u64) -> Option<(Range<u64>, &Area)> {
        self.own.areas.at(address)
    }

    /// Maps zeros at `range`, replacing what was there (`MAP_FIXED | MAP_ANONYMOUS`).
    ///
    /// # Errors
    /// If `range` is not whole pages of user space, or there are too many areas.
    pub fn map(&mut self, range: Range<u64>, permissions: Permissions) -> Result<(), MapError> {
        self.map_backed(range, permissions, Backing::Zero)
    }

    /// Maps a file privately at `range`, starting at the file's byte `offset`, replacing what was
    /// there. Bytes past the end of the file are zero.
    ///
    /// # Errors
    /// Like [`AddressSpace::map`].
    pub fn map_file(
        &mut self,
        range: Range<u64>,
        permissions: Permissions,
        file: impl Into<Content>,
        offset: u64,
    ) -> Result<(), MapError> {
        let backing = Backing::File {
            content: file.into(),
            origin: range.start.wrapping_sub(offset),
        };
        self.map_backed(range, permissions, backing)
    }

    fn map_backed(
        &mut self,
        range: Range<u64>,
        permissions: Permissions,
        backing: Backing,
    ) -> Result<(), MapError> {
        self.check(&range)?;
        // The new area, and the two ends of an area that it splits.
        self.own.areas.room_for(2)?;
        let area = Area {
            end: range.end,
            permissions,
            backing,
        };
        // Before the old areas go, which may be the only ones that map the object.
        self.objects.map(area.object());
        self.drop_range(&range);
        self.own.areas.insert(range.start, area);
        Ok(())
    }

    /// Unmaps `range`, which need not be mapped.
    ///
    /// # Errors
    /// Like [`AddressSpace::map`].
    pub fn unmap(&mut self, range: Range<u64>) -> Result<(), MapError> {
        self.check(&range)?;
        self.own.areas.room_for(1)?;
        self.drop_range(&range);
        Ok(())
    }

    /// Changes permissions. Like Linux, it changes the pages before a hole.
    ///
    /// # Errors
    /// Like [`AddressSpace::map`], and if a part of the range is not mapped.
    pub fn protect(&mut self, range: Range<u64>, permissions: Permissions) -> Result<(), MapError> {
        self.check(&range)?;
        self.own.areas.room_for(2)?;
        self.split(range.start);
        self.split(range.end);
        self.tlb.flush();
        self.own.note(|| Change::Mapped(range.clone()));
        self.own.watch.forget(&range);
        let mut next = range.start;
        for (start, area) in self.own.areas.in_range_mut(&range) {
            if start != next {
                break;
            }
            area.permissions = permissions;
            next = area.end;
        }
        if next == range.end {
            Ok(())
        } else {
            Err(MapError::Hole { address: next })
        }
    }

    /// Drops what was written to a range, so that it holds what it held when it was mapped. What is
    /// shared stays.
    ///
    /// # Errors
    /// If `range` is not whole pages of user space.
    pub fn discard(&mut self, range: Range<u64>) -> Result<(), MapError> {
        self.check(&range)?;
        self.own.note(|| Change::Mapped(range.clone()));
        self.drop_pages(&range);
        self.tlb.flush();
        Ok(())
    }

    /// Replaces the file behind a range; the byte `offset` of the new one is at the start of it.
    /// Pages that were written to keep their content.
    ///
    /// # Errors
    /// Like [`AddressSpace::map`].
    pub fn change_file(
        &mut self,
        range: Range<u64>,
        file: &Content,
        offset: u64,
    ) -> Result<(), MapError> {
        self.check(&range)?;

        // Refused before anything has changed.
        self.own.areas.room_for(2)?;
        // Areas end where the range does, so that each changes as a whole.
        self.split(range.start);
        self.split(range.end);

        let mut pages = Vec::new();
        let numbers = range.start / PAGE_SIZE..range.end / PAGE_SIZE;
        self.own
            .table
            .each(&numbers, |page, frame| pages.push((page, frame)));

        let mut held = [0; PAGE_SIZE as usize];

        // A page with the old file's bytes is read again; one that the process wrote stays its own.
        for (page, frame) in pages {
            let at = page * PAGE_SIZE;
            let area = self.area(at).map(|(_, area)| area);
            let Some(area) = area.filter(|area| area.is_file()) else {
                continue;
            };

            let is_there = area.fill(at, &mut held, &self.frames, &self.objects);
            if is_there.is_ok() && self.frames.get(frame) == held {
                self.drop_pages(&(at..at + PAGE_SIZE));
            }
        }

        for (_, area) in self.own.areas.in_range_mut(&range) {
            if area.is_file() {
                area.backing = Backing::File {
                    content: file.clone(),
                    origin: range.start.wrapping_sub(offset),
                };
            }
        }

        self.own.watch.forget(&range);
        self.own.note(|| Change::Mapped(range.clone()));
        self.tlb.flush();
        Ok(())
    }

    /// Moves mappings with their pages from a range to the range of the same size at `to`,
    /// replacing what was there.
    ///
    /// # Errors
    /// If one of the ranges is not whole pages of user space, they overlap, or there are too many
    /// areas; nothing has changed then.
    pub fn move_range(&mut self, from: Range<u64>, to: u64) -> Result<(), MapError> {
        self.check(&from)?;

        let to = to..to.saturating_add(from.end - from.start);
        self.check(&to)?;

        if from.start < to.end && to.start < from.end {
            let Range { start, end } = to;
            return Err(MapError::Range { start, end });
        }

        // The ends of areas that are split at both ranges.
        self.own.areas.room_for(4)?;

        self.drop_range(&to);
        // Areas end where the range does, so that each moves as a whole.
        self.split(from.start);
        self.split(from.end);

        let by = to.start.wrapping_sub(from.start);
        for (start, mut area) in self.own.areas.remove(&from) {
            area.end = area.end.wrapping_add(by);
            match &mut area.backing {
                Backing::Zero => {}
                Backing::File { origin, .. } | Backing::Object { origin, .. } => {
                    *origin = origin.wrapping_add(by);
                }
            }
            self.own.areas.insert(start.wrapping_add(by), area);
        }

        let mut pages = Vec::new();
        let numbers = from.start / PAGE_SIZE..from.end / PAGE_SIZE;
        self.own
            .table
            .each(&numbers, |page, frame| pages.push((page, frame)));

        // Before `clear`, which would free frames without another owner.
        for &(_, frame) in &pages {
            self.frames.retain(frame);
        }

        self.own.table.clear(&numbers, &mut self.frames);
        for (page, frame) in pages {
            let moved = (page * PAGE_SIZE).wrapping_add(by) / PAGE_SIZE;
            self.own.table.set(moved, frame, &mut self.frames);
        }

        // Blocks are decoded for an address: those of the old range are void.
        self.own.watch.forget(&from);
        self.own.note(|| Change::Mapped(from));
        self.own.note(|| Change::Mapped(to));
        self.tlb.flush();

        Ok(())
    }

    /// The number of pages in use by all spaces; a page that several use counts once.
    pub fn pages_in_use(&self) -> usize {
        self.frames.in_use()
    }

    /// The number of pages of the running space, without those of objects.
    pub fn resident(&self) -> usize {
        self.own.resident()
    }

    /// The number of pages of a space, without those of objects; 0 if there is none with this id.
    pub fn resident_in(&self, id: SpaceId) -> usize {
        if id == self.id {
            return self.own.resident();
        }
        self.resting.get(&id).map_or(0, Space::resident)
    }

    /// Whether the page of an address is in use: it was read or written.
    pub fn has_frame(&self, address: u64) -> bool {
        self.own.frame(address, &self.objects).is_some()
    }

    /// The start of the highest free range of `size` bytes below `top`, which is where Linux's
    /// top-down search finds one. `None` if there is none, or if `size` is not whole pages.
    pub fn find_free(&self, size: u64, top: u64) -> Option<u64> {
        self.own.areas.find_free(size, top)
    }

    /// Removes areas and pages of a checked range.
    fn drop_range(&mut self, range: &Range<u64>) {
        self.own.note(|| Change::Mapped(range.clone()));
        self.split(range.start);
        self.split(range.end);
        for (_, area) in self.own.areas.remove(range) {
            self.objects.unmap(area.object(), &mut self.frames);
        }
        self.drop_pages(range);
        self.tlb.flush();
    }

    /// Removes the space's own pages of a range.
    fn drop_pages(&mut self, range: &Range<u64>) {
        self.own.watch.forget(range);
        let pages = range.start / PAGE_SIZE..range.end / PAGE_SIZE;
        self.own.table.clear(&pages, &mut self.frames);
    }

    /// Splits the area that `address` lies in.
    fn split(&mut self, address: u64) {
        if let Some(upper) = self.own.areas.split(address) {
            self.objects.map(upper.object());
        }
    }

    /// Fills `buf` from `address`.
    ///
    /// # Errors
    /// The fault at the first byte that cannot be read; `buf` then holds the bytes before it.
    pub fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), Fault> {
        self.load(address, buf, Some(Access::Read))
    }

    /// The 8 bytes at `address`, which need not be aligned.
    ///
    /// # Errors
    /// Like [`AddressSpace::read`].
    #[inline]
    pub fn read_u64(&self, address: u64) -> Result<u64, Fault> {
        if let Some(word) = self.recent_u64(address) {
            return Ok(word);
        }
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Fills `buf` with instruction bytes.
    ///
    /// # Errors
    /// Like [`AddressSpace::read`], for execution.
    pub fn fetch(&self, address: u64, buf: &mut [u8]) -> Result<(), Fault> {
        self.load(address, buf, Some(Access::Execute))
    }

    /// Fills `buf` regardless of permissions: for debuggers and the loader.
    ///
    /// # Errors
    /// The fault at the first byte that is not mapped.
    pub fn peek(&self, address: u64, buf: &mut [u8]) -> Result<(), Fault> {
        self.load(address, buf, None)
    }

    /// Stores all of `bytes` at `address`, or nothing.
    ///
    /// # Errors
    /// The fault at the first byte that cannot be written.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.store(address, bytes, Some(Access::Write))
    }

    /// Stores `bytes` regardless of permissions: for debuggers and the loader.
    ///
    /// # Errors
    /// The fault at the first byte that is not mapped.
    pub fn poke(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.store(address, bytes, None)
    }

    fn load(&self, address: u64, buf: &mut [u8], access: Option<Access>) -> Result<(), Fault> {
        if let Some(paging) = &self.paging {
            return self.load_through_tables(paging, address, buf, access);
        }
        let (frames, objects) = (&self.frames, &self.objects);
        self.own.load(frames, objects, address, buf, access)
    }

    fn store(&mut self, address: u64, bytes: &[u8], access: Option<Access>) -> Result<(), Fault> {
        if self.paging.is_some() {
            return self.store_through_tables(address, bytes, access);
        }
        let (mut checked, mut new) = (0, 0);

        // All pages are checked first: a store that faults changes nothing.
        while checked < bytes.len() as u64 {
            let at = address.wrapping_add(checked);
            self.own.usable(at, access, Access::Write)?;
            if self.own.needs_frame(at, &self.frames, &self.objects) {
                new += 1;
                self.own
                    .check_there(at, Access::Write, &self.frames, &self.objects)?;
            }

            if !self.frames.has_room(new) {
                return Err(Fault::new(
                    at,
                    access.unwrap_or(Access::Write),
                    FaultKind::OutOfPages,
                ));
            }
            checked += PAGE_SIZE - at % PAGE_SIZE;
        }

        // One store, even over several pages.
        let end = address.wrapping_add(bytes.len() as u64);
        self.own.note(|| Change::Stored(address..end));

        let mut done = 0;
        while done < bytes.len() {
            let at = address.wrapping_add(done as u64);
            let in_page = (at % PAGE_SIZE) as usize;
            let count = (bytes.len() - done).min(PAGE_SIZE as usize - in_page);
            if let Ok(frame) = self.frame_to_write(at) {
                let to = &mut self.frames.get_mut(frame)[in_page..][..count];
                to.copy_from_slice(&bytes[done..done + count]);
                self.own.stored(at, count as u64, frame, &mut self.frames);
            }
            done += count;
        }
        Ok(())
    }

    /// The frame of a mapped address, for reading; see [`Space::frame_to_read`].
    fn frame_to_read(&mut self, address: u64) -> Result<u32, FaultKind> {
        let (frames, objects) = (&mut self.frames, &mut self.objects);
        self.own.frame_to_read(address, frames, objects)
    }

    /// The frame of a mapped address, for writing; see [`Space::frame_to_write`].
    fn frame_to_write(&mut self, address: u64) -> Result<u32, FaultKind> {
        let (frames, objects) = (&mut self.frames, &mut self.objects);
        let (frame, is_new) = self.own.frame_to_write(address, frames, objects)?;
        if is_new {
            self.tlb.forget_read(address);
        }
        Ok(frame)
    }

    fn is_code(&self, address: u64) -> bool {
        self.own.is_code(address, &self.frames, &self.objects)
    }

    fn check(&self, range: &Range<u64>) -> Result<(), MapError> {
        let Range { start, end } = *range;
        let whole = start.is_multiple_of(PAGE_SIZE) && end.is_multiple_of(PAGE_SIZE);
        if whole && start < end && start >= self.own.lowest && end <= TASK_SIZE {
            return Ok(());
        }
        Err(MapError::Range { start, end })
    }
}
