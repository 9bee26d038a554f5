//! One space: its areas, its page table, and its changes. Not here: which space runs.

use super::area::{Area, Areas, Backing, PagesInUse};
use super::content::PageMissing;
use super::fault::{Access, Fault, FaultKind};
use super::frames::Frames;
use super::limits::{PAGE_SIZE, TASK_SIZE};
use super::objects::Objects;
use super::table::{NodeCopies, SavedTree, Table};
use super::watch::Watch;
use std::ops::Range;

/// A change of memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Bytes were stored, by an instruction or by the host.
    Stored(Range<u64>),
    /// Pages were mapped, unmapped, protected or emptied; their content has to be read again.
    Mapped(Range<u64>),
}

#[derive(Debug)]
pub(super) struct Space {
    /// The lowest address that can be mapped.
    pub(super) lowest: u64,
    pub(super) areas: Areas,
    /// The pages that belong to the space. Those of objects are in tables of theirs.
    pub(super) table: Table,
    pub(super) watch: Watch,
    /// Changes since the last [`super::AddressSpace::take_changes`], if they are noted.
    pub(super) changes: Option<Vec<Change>>,
}

/// A space as it was.
#[derive(Debug)]
pub(super) struct SavedSpace {
    lowest: u64,
    pub(super) areas: Areas,
    pub(super) table: SavedTree,
}

impl Space {
    pub(super) fn new(lowest: u64, stamp: u64) -> Space {
        Space {
            lowest,
            areas: Areas::default(),
            table: Table::default(),
            watch: Watch::new(stamp),
            changes: None,
        }
    }

    /// A copy that shares all pages. It has no decoded code.
    pub(super) fn fork(&self, stamp: u64, objects: &mut Objects) -> Space {
        if !objects.is_empty() {
            for (_, area) in self.areas.iter() {
                objects.map(area.object());
            }
        }
        Space {
            lowest: self.lowest,
            areas: self.areas.clone(),
            table: self.table.fork(),
            watch: Watch::new(stamp),
            changes: None,
        }
    }

    /// The number of its own pages.
    pub(super) fn resident(&self) -> usize {
        let mut count = 0;
        let all = 0..TASK_SIZE / PAGE_SIZE;
        self.table.each(&all, |_, _| count += 1);
        count
    }

    /// The pages of an area that are in use.
    pub(super) fn pages_in(
        &self,
        range: &Range<u64>,
        area: &Area,
        objects: &Objects,
    ) -> PagesInUse {
        let first = range.start / PAGE_SIZE;
        let mut own = 0;
        self.table
            .each(&(first..range.end / PAGE_SIZE), |_, _| own += 1);
        let Some((object, start)) = area.object().zip(area.offset_at(range.start)) else {
            return PagesInUse {
                own,
                ..PagesInUse::default()
            };
        };

        let offsets = start / PAGE_SIZE..(start + (range.end - range.start)) / PAGE_SIZE;
        let mut shown = 0;
        // A private mapping has its own copy of the pages that were written.
        objects.each(object, &offsets, |page| {
            let is_own = self.table.get(first + page - offsets.start).is_some();
            shown += usize::from(!is_own);
        });
        PagesInUse {
            own,
            shown,
            mappings: objects.mappings(object),
        }
    }

    pub(super) fn release(self, frames: &mut Frames, objects: &mut Objects) {
        if !objects.is_empty() {
            for (_, area) in self.areas.iter() {
                objects.unmap(area.object(), frames);
            }
        }
        self.table.release(frames);
    }

    pub(super) fn save(&self) -> SavedSpace {
        SavedSpace {
            lowest: self.lowest,
            areas: self.areas.clone(),
            table: self.table.hold(),
        }
    }

    /// The space as it was, with this stamp and without decoded code.
    pub(super) fn acquire(saved: &SavedSpace, stamp: u64, frames: &mut Frames) -> Space {
        Space {
            lowest: saved.lowest,
            areas: saved.areas.clone(),
            table: Table::acquire(&saved.table, frames),
            watch: Watch::new(stamp),
            changes: None,
        }
    }

    /// A copy for copied frames.
    pub(super) fn copy(&self, copies: &mut NodeCopies) -> Space {
        Space {
            lowest: self.lowest,
            areas: self.areas.clone(),
            table: self.table.copy(copies),
            watch: self.watch.clone(),
            changes: self.changes.clone(),
        }
    }

    #[inline]
    pub(super) fn note(&mut self, change: impl FnOnce() -> Change) {
        if let Some(changes) = &mut self.changes {
            changes.push(change());
        }
    }

    /// The area of an address, if it allows the access (`None`: any area).
    pub(super) fn usable(
        &self,
        address: u64,
        access: Option<Access>,
        shown: Access,
    ) -> Result<&Area, Fault> {
        let fault = |kind| Fault {
            address,
            access: access.unwrap_or(shown),
            kind,
        };
        // Bits 63 to 47 must be equal.
        if !matches!(address.cast_signed() >> 47, 0 | -1) {
            return Err(fault(FaultKind::NonCanonical));
        }
        let (_, area) = self.areas.at(address).ok_or(fault(FaultKind::Unmapped))?;
        if access.is_some_and(|access| !area.permissions.allow(access)) {
            return Err(fault(FaultKind::Protected));
        }
        Ok(area)
    }

    /// The frame of an address, if it has one.
    pub(super) fn frame(&self, address: u64, objects: &Objects) -> Option<u32> {
        let own = self.table.get(address / PAGE_SIZE);
        if own.is_some() || objects.is_empty() {
            return own;
        }
        let (_, area) = self.areas.at(address)?;
        area.object_frame(address, objects)
    }

    /// The frame of a mapped address, for reading; created if necessary.
    ///
    /// # Errors
    /// `OutOfPages`, and `Gone` if the file that is mapped there no longer has the page.
    pub(super) fn frame_to_read(
        &mut self,
        address: u64,
        frames: &mut Frames,
        objects: &mut Objects,
    ) -> Result<u32, FaultKind> {
        let page = address / PAGE_SIZE;
        if let Some(frame) = self.table.get(page) {
            return Ok(frame);
        }
        let (_, area) = self.areas.at(address).ok_or(FaultKind::Unmapped)?;
        if let Backing::Object { object, origin, .. } = area.backing {
            return objects.create_frame(object, address.wrapping_sub(origin), frames);
        }
        let frame = area.new_frame(page * PAGE_SIZE, frames, objects)?;
        self.table.set(page, frame, frames);
        Ok(frame)
    }

    /// The frame of a mapped address, for writing, and whether the page has got another one: it is
    /// created or copied if necessary, and saved for snapshots.
    ///
    /// # Errors
    /// As for [`Space::frame_to_read`].
    pub(super) fn frame_to_write(
        &mut self,
        address: u64,
        frames: &mut Frames,
        objects: &mut Objects,
    ) -> Result<(u32, bool), FaultKind> {
        let page = address / PAGE_SIZE;
        let found = self.table.find(page);

        // Written in place: neither this part of the table nor the frame has another owner.
        if let Some((frame, is_alone)) = found
            && is_alone
            && frames.is_alone(frame)
        {
            // A snapshot may need the old content.
            frames.save(frame);
            return Ok((frame, false));
        }

        let (_, area) = self.areas.at(address).ok_or(FaultKind::Unmapped)?;
        if let Backing::Object {
            object,
            origin,
            is_shared: true,
        } = area.backing
        {
            // A shared mapping has no page of its own: the object's page is written.
            let offset = address.wrapping_sub(origin);
            let frame = objects.create_frame(object, offset, frames)?;
            objects.will_store(object, offset);
            frames.save(frame);
            return Ok((frame, false));
        }

        // Copy on write, or the first use of the page.
        let frame = match found {
            Some((from, _)) => {
                let frame = frames.allocate().ok_or(FaultKind::OutOfPages)?;
                frames.copy(from, frame);
                frame
            }
            None => area.new_frame(page * PAGE_SIZE, frames, objects)?,
        };

        self.table.set(page, frame, frames);
        Ok((frame, true))
    }

    /// Checks that a file which is mapped at an address still has the page.
    pub(super) fn check_there(
        &self,
        address: u64,
        access: Access,
        frames: &Frames,
        objects: &Objects,
    ) -> Result<(), Fault> {
        if self.table.get(address / PAGE_SIZE).is_some() {
            return Ok(());
        }
        let area = self.areas.at(address).map(|(_, area)| area);
        let there = area.map_or(Ok(()), |area| area.fill(address, &mut [0], frames, objects));
        there.map_err(|PageMissing| Fault::new(address, access, FaultKind::Gone))
    }

    /// Whether a store to a mapped address needs a new frame.
    pub(super) fn needs_frame(&self, address: u64, frames: &Frames, objects: &Objects) -> bool {
        match self.table.find(address / PAGE_SIZE) {
            Some((frame, is_alone)) => !is_alone || !frames.is_alone(frame),
            None => {
                let area = self.areas.at(address).map(|(_, area)| area);
                let shared = area.filter(|area| area.is_shared());
                shared
                    .and_then(|area| area.object_frame(address, objects))
                    .is_none()
            }
        }
    }

    /// Whether instructions were decoded from the page of an address, here or, if it is shared, at
    /// another place.
    pub(super) fn is_code(&self, address: u64, frames: &Frames, objects: &Objects) -> bool {
        self.watch.contains(address / PAGE_SIZE)
            || frames.has_code()
                && self
                    .frame(address, objects)
                    .is_some_and(|frame| frames.code_version(frame).is_some())
    }

    /// Reports a store of `size` bytes, inside a page that has this frame.
    pub(super) fn stored(&mut self, address: u64, size: u64, frame: u32, frames: &mut Frames) {
        match frames.code_version(frame) {
            None => self.watch.stored(address, size),
            Some(_) => {
                frames.code_changed(frame);
                let in_page = address % PAGE_SIZE;
                self.watch.stored_to(frame, in_page, size, frames);
            }
        }
    }

    /// Fills `buf` from `address`, see [`super::AddressSpace::read`].
    pub(super) fn load(
        &self,
        frames: &Frames,
        objects: &Objects,
        address: u64,
        buf: &mut [u8],
        access: Option<Access>,
    ) -> Result<(), Fault> {
        let mut done = 0;
        while done < buf.len() {
            let at = address.wrapping_add(done as u64);
            let area = self.usable(at, access, Access::Read)?;

            let in_page = (at % PAGE_SIZE) as usize;

            // Up to the end of the page: the next one may be elsewhere, or nowhere.
            let count = (buf.len() - done).min(PAGE_SIZE as usize - in_page);
            let to = &mut buf[done..done + count];

            // A page without a frame still has what its area says: zeros, or bytes of the file.
            match self.table.get(at / PAGE_SIZE) {
                Some(frame) => to.copy_from_slice(&frames.get(frame)[in_page..][..count]),
                None => {
                    let filled = area.fill(at, to, frames, objects);
                    let access = access.unwrap_or(Access::Read);
                    filled.map_err(|PageMissing| Fault::new(at, access, FaultKind::Gone))?;
                }
            }

            done += count;
        }

        Ok(())
    }
}

impl Area {
    /// The frame of the object that is mapped at an address.
    fn object_frame(&self, address: u64, objects: &Objects) -> Option<u32> {
        objects.frame(self.object()?, self.offset_at(address)?)
    }

    /// Fills `to`, which is inside a page, with what the area holds at `address` if the space has
    /// no page of its own there.
    ///
    /// # Errors
    /// If a file is mapped that no longer has the page.
    pub(super) fn fill(
        &self,
        address: u64,
        to: &mut [u8],
        frames: &Frames,
        objects: &Objects,
    ) -> Result<(), PageMissing> {
        match &self.backing {
            Backing::Zero => {
                to.fill(0);
                Ok(())
            }
            Backing::File { content, origin } => content.read(address.wrapping_sub(*origin), to),
            Backing::Object { object, origin, .. } => {
                objects.load(*object, address.wrapping_sub(*origin), to, frames)
            }
        }
    }

    /// A new frame with what the area holds in a whole page.
    fn new_frame(
        &self,
        page: u64,
        frames: &mut Frames,
        objects: &Objects,
    ) -> Result<u32, FaultKind> {
        let shown = self.object_frame(page, objects);
        let frame = frames.allocate().ok_or(FaultKind::OutOfPages)?;
        if let Some(shown) = shown {
            frames.copy(shown, frame);
            return Ok(frame);
        }
        let mut bytes = [0; PAGE_SIZE as usize];
        if let Err(PageMissing) = self.fill(page, &mut bytes, frames, objects) {
            frames.release(frame);
            return Err(FaultKind::Gone);
        }
        frames.get_mut(frame).copy_from_slice(&bytes);
        Ok(frame)
    }
}
