//! Mappings of objects, and the kernel's access to objects.

use super::AddressSpace;
use super::area::Backing;
use super::content::{Content, PageMissing};
use super::fault::{MapError, Permissions};
use super::ids::{MemoryKey, ObjectId};
use super::limits::PAGE_SIZE;
use super::objects::SIZE_MAX;
use super::space::Change;
use std::ops::Range;

/// Why an object cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum ObjectError {
    /// There is none with this id.
    #[error("no such object")]
    Unknown,
    /// It would be too large.
    #[error("an object has at most {SIZE_MAX:#x} bytes")]
    Range,
    /// The file that it shows has no such page any longer.
    #[error("its file has no such page any longer")]
    Gone,
    /// The emulated machine is out of pages.
    #[error("the emulated machine has no pages left")]
    OutOfPages,
}

/// The parts of a range of an object's bytes that are in one page each, as offset and size.
fn pieces(offset: u64, size: usize) -> impl Iterator<Item = (u64, usize)> {
    let end = offset + size as u64;
    let mut next = offset;
    std::iter::from_fn(move || {
        let at = next;
        next = (at - at % PAGE_SIZE + PAGE_SIZE).min(end);
        (at < end).then(|| (at, (next - at) as usize))
    })
}

impl AddressSpace {
    /// Creates an object that begins with these bytes; zeros follow. The caller holds it: it lives
    /// until it is released and no space maps it.
    pub fn create_object(&mut self, content: impl Into<Content>) -> ObjectId {
        let id = ObjectId(self.take_number());
        self.objects.create(id, content.into());
        id
    }

    /// Ends the hold of an object's creator.
    pub fn release_object(&mut self, object: ObjectId) {
        self.objects.release(object, &mut self.frames);
    }

    /// Whether any space maps an object.
    pub fn is_mapped(&self, object: ObjectId) -> bool {
        self.objects.is_mapped(object)
    }

    /// Maps an object at `range`, starting at its byte `offset`, replacing what was there. All who
    /// map it so see each other's stores (`MAP_SHARED`).
    ///
    /// # Errors
    /// Like [`AddressSpace::map`], and if there is no such object or not whole pages of it.
    pub fn map_shared(
        &mut self,
        range: Range<u64>,
        permissions: Permissions,
        object: ObjectId,
        offset: u64,
    ) -> Result<(), MapError> {
        self.map_object(range, permissions, object, offset, true)
    }

    /// Maps an object privately at `range`, starting at its byte `offset`, replacing what was there
    /// (`MAP_PRIVATE`). A page shows what others store, until it is written here.
    ///
    /// # Errors
    /// Like [`AddressSpace::map_shared`].
    pub fn map_private(
        &mut self,
        range: Range<u64>,
        permissions: Permissions,
        object: ObjectId,
        offset: u64,
    ) -> Result<(), MapError> {
        self.map_object(range, permissions, object, offset, false)
    }

    fn map_object(
        &mut self,
        range: Range<u64>,
        permissions: Permissions,
        object: ObjectId,
        offset: u64,
        is_shared: bool,
    ) -> Result<(), MapError> {
        self.check(&range)?;
        let end = offset.checked_add(range.end - range.start);
        let has_room = offset.is_multiple_of(PAGE_SIZE) && end.is_some_and(|end| end <= SIZE_MAX);
        if !has_room || !self.objects.contains(object) {
            return Err(MapError::Object);
        }
        let backing = Backing::Object {
            object,
            origin: range.start.wrapping_sub(offset),
            is_shared,
        };
        self.map_backed(range, permissions, backing)
    }

    /// Fills `buf` from an object's byte `offset`.
    ///
    /// # Errors
    /// If there is no such object, it cannot be so large, or a page of its file is gone.
    pub fn read_object(
        &self,
        object: ObjectId,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<(), ObjectError> {
        self.check_object(object, offset, buf.len() as u64)?;
        let mut rest = buf;
        for (at, size) in pieces(offset, rest.len()) {
            let to;
            (to, rest) = rest.split_at_mut(size);
            let loaded = self.objects.load(object, at, to, &self.frames);
            loaded.map_err(|PageMissing| ObjectError::Gone)?;
        }
        Ok(())
    }

    /// Stores `bytes` at an object's byte `offset`, or nothing.
    ///
    /// # Errors
    /// If there is no such object, it cannot be so large, or there are no pages left.
    pub fn write_object(
        &mut self,
        object: ObjectId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), ObjectError> {
        self.check_object(object, offset, bytes.len() as u64)?;
        self.note_object(object, &(offset..offset + bytes.len() as u64));

        // All or nothing: room for every page, before the first byte.
        let is_new = |at| self.objects.frame(object, at).is_none();
        let new = pieces(offset, bytes.len()).filter(|&(at, _)| is_new(at));
        if !self.frames.has_room(new.count()) {
            return Err(ObjectError::OutOfPages);
        }

        let mut rest = bytes;
        for (at, size) in pieces(offset, bytes.len()) {
            let from;
            (from, rest) = rest.split_at(size);
            let (objects, frames) = (&mut self.objects, &mut self.frames);
            if let Ok(frame) = objects.create_frame(object, at, frames) {
                // Snapshots need the old content, and code may be decoded through a mapping.
                frames.save(frame);
                frames.code_changed(frame);
                frames.get_mut(frame)[(at % PAGE_SIZE) as usize..][..size].copy_from_slice(from);
            }
        }

        self.own.watch.check(&self.frames);
        Ok(())
    }

    /// Makes an object's bytes from `size` on zero.
    ///
    /// # Errors
    /// If there is no such object.
    pub fn truncate_object(&mut self, object: ObjectId, size: u64) -> Result<(), ObjectError> {
        self.check_object(object, 0, 0)?;
        self.note_object(object, &(size..SIZE_MAX));
        self.objects.truncate(object, size, &mut self.frames);
        self.tlb.flush();
        self.own.watch.check(&self.frames);
        Ok(())
    }

    /// Makes a range of an object's bytes zero, as they are in its new content, which otherwise is
    /// the same.
    ///
    /// # Errors
    /// If there is no such object.
    pub fn punch_object(
        &mut self,
        object: ObjectId,
        hole: Range<u64>,
        content: Content,
    ) -> Result<(), ObjectError> {
        self.check_object(object, 0, 0)?;
        self.note_object(object, &hole);
        self.objects.punch(object, &hole, content, &mut self.frames);
        self.own.watch.check(&self.frames);
        Ok(())
    }

    /// Gives an object a size, for [`AddressSpace::object_size`]; it limits nothing.
    pub fn set_object_size(&mut self, object: ObjectId, size: u64) {
        self.objects.set_size(object, size);
    }

    /// The size that an object was given, or the largest possible one, bytes. `None` if there is no
    /// such object.
    pub fn object_size(&self, object: ObjectId) -> Option<u64> {
        self.objects.size(object)
    }

    /// Notes that bytes of an object change, where the running space shows them.
    fn note_object(&mut self, object: ObjectId, bytes: &Range<u64>) {
        if self.own.changes.is_none() {
            return;
        }
        let all = self.own.areas.iter();
        let shown = all.filter_map(|(range, area)| {
            let first = area.offset_at(range.start)?;
            let from = bytes.start.max(first) - first;
            let to = bytes.end.saturating_sub(first);
            let shown = range.start.saturating_add(from)..range.start.saturating_add(to);
            let shown = shown.start..shown.end.min(range.end);
            (area.object() == Some(object) && shown.start < shown.end).then_some(shown)
        });
        for range in shown.collect::<Vec<_>>() {
            self.own.note(|| Change::Stored(range));
        }
    }

    /// Starts to note which pages of an object are stored to through mappings.
    pub fn note_stores(&mut self, object: ObjectId) {
        self.objects.note_stores(object);
        self.tlb.flush_writes();
    }

    /// Takes the offsets of the pages of an object that may have been stored to, ascending, since
    /// [`AddressSpace::note_stores`] or since they were last taken.
    pub fn take_stored(&mut self, object: ObjectId) -> Vec<u64> {
        let stored = self.objects.take_stored(object);
        if !stored.is_empty() {
            // So that the next store to each page takes the slow path.
            self.tlb.flush_writes();
        }
        stored.into_iter().map(|page| page * PAGE_SIZE).collect()
    }

    fn check_object(&self, object: ObjectId, offset: u64, size: u64) -> Result<(), ObjectError> {
        if !self.objects.contains(object) {
            return Err(ObjectError::Unknown);
        }
        let end = offset.checked_add(size).filter(|&end| end <= SIZE_MAX);
        end.map(drop).ok_or(ObjectError::Range)
    }

    /// What is at an address, for comparisons between spaces. `None` if nothing is mapped.
    pub fn place(&self, address: u64) -> Option<MemoryKey> {
        let (_, area) = self.area(address)?;
        let shared = area.object().filter(|_| area.is_shared());
        Some(match (shared, area.offset_at(address)) {
            (Some(object), Some(offset)) => MemoryKey::Shared { object, offset },
            _ => MemoryKey::Private {
                space: self.id,
                address,
            },
        })
    }
}

#[cfg(test)]
mod tests;
