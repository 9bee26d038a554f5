//! Objects: memory that several mappings share. Not here: mapping them (`shared`).

use super::content::{Content, PageMissing};
use super::fault::FaultKind;
use super::frames::Frames;
use super::ids::ObjectId;
use super::limits::PAGE_SIZE;
use super::table::{NodeCopies, PAGES, SavedTree, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The size of the largest object, bytes.
pub(super) const SIZE_MAX: u64 = PAGES * PAGE_SIZE;

#[derive(Debug)]
struct Object {
    table: Table,
    /// The content before it is written; zero behind it.
    content: Content,
    /// The number of areas that map it.
    mappings: usize,
    /// Its creator has not released it.
    is_held: bool,
    /// The pages that spaces may have stored to since they were last taken, if they are noted.
    stored: Option<BTreeSet<u64>>,
    /// The number of bytes that its creator gave it.
    size: u64,
}

/// An object as it was.
#[derive(Debug)]
pub(super) struct SavedObject {
    table: SavedTree,
    content: Content,
    mappings: usize,
    is_held: bool,
    stored: Option<BTreeSet<u64>>,
    size: u64,
}

/// The objects of a memory.
#[derive(Default, Debug)]
pub(super) struct Objects(BTreeMap<ObjectId, Object>);

impl Objects {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains(&self, id: ObjectId) -> bool {
        self.0.contains_key(&id)
    }

    pub(super) fn create(&mut self, id: ObjectId, content: Content) {
        let object = Object {
            table: Table::default(),
            content,
            mappings: 0,
            is_held: true,
            stored: None,
            size: SIZE_MAX,
        };
        self.0.insert(id, object);
    }

    /// Whether an area maps the object.
    pub(super) fn is_mapped(&self, id: ObjectId) -> bool {
        self.0.get(&id).is_some_and(|object| object.mappings > 0)
    }

    /// The number of areas that map an object.
    pub(super) fn mappings(&self, id: ObjectId) -> usize {
        self.0.get(&id).map_or(0, |object| object.mappings)
    }

    /// Calls `f` with the pages of a range of an object that are in use.
    pub(super) fn each(&self, id: ObjectId, pages: &Range<u64>, mut f: impl FnMut(u64)) {
        if let Some(object) = self.0.get(&id) {
            object.table.each(pages, |page, _| f(page));
        }
    }

    /// Counts a new area, if it maps an object.
    pub(super) fn map(&mut self, id: Option<ObjectId>) {
        if let Some(object) = id.and_then(|id| self.0.get_mut(&id)) {
            object.mappings += 1;
        }
    }

    /// Forgets an area; the object is dropped if nobody else has it.
    pub(super) fn unmap(&mut self, id: Option<ObjectId>, frames: &mut Frames) {
        if let Some(id) = id
            && let Some(object) = self.0.get_mut(&id)
        {
            object.mappings -= 1;
            self.drop_unused(id, frames);
        }
    }

    /// Ends the creator's hold.
    pub(super) fn release(&mut self, id: ObjectId, frames: &mut Frames) {
        if let Some(object) = self.0.get_mut(&id) {
            object.is_held = false;
            self.drop_unused(id, frames);
        }
    }

    fn drop_unused(&mut self, id: ObjectId, frames: &mut Frames) {
        let is_used = |object: &Object| object.is_held || object.mappings > 0;
        if !self.0.get(&id).is_some_and(is_used)
            && let Some(object) = self.0.remove(&id)
        {
            object.table.release(frames);
        }
    }

    /// The frame at an offset, if it is in use.
    pub(super) fn frame(&self, id: ObjectId, offset: u64) -> Option<u32> {
        self.0.get(&id)?.table.get(offset / PAGE_SIZE)
    }

    /// The frame at an offset, created if necessary.
    ///
    /// # Errors
    /// `Unmapped` if there is no such object, `OutOfPages`, and `Gone`.
    pub(super) fn create_frame(
        &mut self,
        id: ObjectId,
        offset: u64,
        frames: &mut Frames,
    ) -> Result<u32, FaultKind> {
        let object = self.0.get_mut(&id).ok_or(FaultKind::Unmapped)?;
        let page = offset / PAGE_SIZE;
        if let Some(frame) = object.table.get(page) {
            return Ok(frame);
        }
        let frame = frames.allocate().ok_or(FaultKind::OutOfPages)?;
        let content = &object.content;
        if let Err(PageMissing) = content.read(page * PAGE_SIZE, frames.get_mut(frame)) {
            frames.release(frame);
            return Err(FaultKind::Gone);
        }
        object.table.set(page, frame, frames);
        Ok(frame)
    }

    pub(super) fn set_size(&mut self, id: ObjectId, size: u64) {
        if let Some(object) = self.0.get_mut(&id) {
            object.size = size;
        }
    }

    pub(super) fn size(&self, id: ObjectId) -> Option<u64> {
        self.0.get(&id).map(|object| object.size)
    }

    /// Starts to note the pages that spaces store to.
    pub(super) fn note_stores(&mut self, id: ObjectId) {
        if let Some(object) = self.0.get_mut(&id) {
            object.stored.get_or_insert_default();
        }
    }

    /// Notes that a space may store to a page from here on, if that is wanted.
    pub(super) fn will_store(&mut self, id: ObjectId, offset: u64) {
        if let Some(object) = self.0.get_mut(&id)
            && let Some(stored) = &mut object.stored
        {
            stored.insert(offset / PAGE_SIZE);
        }
    }

    /// Takes the pages that spaces may have stored to.
    pub(super) fn take_stored(&mut self, id: ObjectId) -> BTreeSet<u64> {
        let object = self.0.get_mut(&id);
        let stored = object.and_then(|object| object.stored.as_mut());
        stored.map(std::mem::take).unwrap_or_default()
    }

    /// Fills `to`, which is inside a page, from an offset: zeros if there is no such object.
    ///
    /// # Errors
    /// If the object shows a file that no longer has the page.
    pub(super) fn load(
        &self,
        id: ObjectId,
        offset: u64,
        to: &mut [u8],
        frames: &Frames,
    ) -> Result<(), PageMissing> {
        match (self.frame(id, offset), self.0.get(&id)) {
            (Some(frame), _) => {
                let in_page = (offset % PAGE_SIZE) as usize;
                to.copy_from_slice(&frames.get(frame)[in_page..][..to.len()]);
                Ok(())
            }
            (None, Some(object)) => object.content.read(offset, to),
            (None, None) => {
                to.fill(0);
                Ok(())
            }
        }
    }

    /// Makes the bytes from `size` on zero.
    pub(super) fn truncate(&mut self, id: ObjectId, size: u64, frames: &mut Frames) {
        let Some(object) = self.0.get_mut(&id) else {
            return;
        };
        object.content = object.content.truncated(size);
        object
            .table
            .clear(&(size.div_ceil(PAGE_SIZE)..PAGES), frames);
        if let Some(frame) = object.table.get(size / PAGE_SIZE) {
            frames.save(frame);
            frames.code_changed(frame);
            frames.get_mut(frame)[(size % PAGE_SIZE) as usize..].fill(0);
        }
    }

    /// Makes a range zero, as it is in the new content.
    pub(super) fn punch(
        &mut self,
        id: ObjectId,
        hole: &Range<u64>,
        content: Content,
        frames: &mut Frames,
    ) {
        let Some(object) = self.0.get_mut(&id) else {
            return;
        };
        object.content = content;
        let mut held = Vec::new();
        let pages = hole.start / PAGE_SIZE..hole.end.div_ceil(PAGE_SIZE).min(PAGES);
        let table = &object.table;
        table.each(&pages, |page, frame| held.push((page * PAGE_SIZE, frame)));
        for (start, frame) in held {
            let from = hole.start.max(start) - start;
            let to = hole.end.min(start + PAGE_SIZE) - start;
            frames.save(frame);
            frames.code_changed(frame);
            frames.get_mut(frame)[from as usize..to as usize].fill(0);
        }
    }

    pub(super) fn save(&self) -> Vec<(ObjectId, SavedObject)> {
        let saved = |(&id, object): (&ObjectId, &Object)| {
            let saved = SavedObject {
                table: object.table.hold(),
                content: object.content.clone(),
                mappings: object.mappings,
                is_held: object.is_held,
                stored: object.stored.clone(),
                size: object.size,
            };
            (id, saved)
        };
        self.0.iter().map(saved).collect()
    }

    pub(super) fn acquire(saved: &[(ObjectId, SavedObject)], frames: &mut Frames) -> Objects {
        let acquired = saved.iter().map(|(id, saved)| {
            let object = Object {
                table: Table::acquire(&saved.table, frames),
                content: saved.content.clone(),
                mappings: saved.mappings,
                is_held: saved.is_held,
                stored: saved.stored.clone(),
                size: saved.size,
            };
            (*id, object)
        });
        Objects(acquired.collect())
    }

    pub(super) fn release_all(self, frames: &mut Frames) {
        for object in self.0.into_values() {
            object.table.release(frames);
        }
    }

    /// A copy for copied frames.
    pub(super) fn copy(&self, copies: &mut NodeCopies) -> Objects {
        let copied = self.0.iter().map(|(&id, object)| {
            let copy = Object {
                table: object.table.copy(copies),
                content: object.content.clone(),
                mappings: object.mappings,
                is_held: object.is_held,
                stored: object.stored.clone(),
                size: object.size,
            };
            (id, copy)
        });
        Objects(copied.collect())
    }
}

#[cfg(test)]
impl Objects {
    pub(super) fn tables(&self) -> impl Iterator<Item = &Table> {
        self.0.values().map(|object| &object.table)
    }
}
