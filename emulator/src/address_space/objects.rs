//! Objects: memory that several mappings share. Not here: mapping them (`shared`).

use super::frames::Frames;
use super::ids::ObjectId;
use super::limits::PAGE_SIZE;
use super::table::{Copies, Held, PAGES, Table};
use std::collections::{BTreeMap, BTreeSet};
use unwind_sim_unwind::image::Bytes;

/// The size of the largest object, bytes.
pub(super) const SIZE_MAX: u64 = PAGES * PAGE_SIZE;

#[derive(Debug)]
struct Object {
    table: Table,
    /// The content before it is written; zero behind it.
    content: Bytes,
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
    table: Held,
    content: Bytes,
    mappings: usize,
    is_held: bool,
    stored: Option<BTreeSet<u64>>,
    size: u64,
}

/// The objects of a memory.
#[derive(Default, Debug)]
pub(super) struct Objects(BTreeMap<ObjectId, Object>);

/// Fills `to` with bytes from `offset` on, and zeros past their end.
pub(super) fn fill(bytes: &[u8], offset: u64, to: &mut [u8]) {
    let start = usize::try_from(offset).ok();
    let from = start.and_then(|start| bytes.get(start..));
    let from = from.unwrap_or_default();
    let (held, behind) = to.split_at_mut(from.len().min(to.len()));
    held.copy_from_slice(&from[..held.len()]);
    behind.fill(0);
}

impl Objects {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains(&self, id: ObjectId) -> bool {
        self.0.contains_key(&id)
    }

    pub(super) fn create(&mut self, id: ObjectId, content: Bytes) {
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

    /// The frame at an offset, created if necessary. `None` if there is no room.
    pub(super) fn create_frame(
        &mut self,
        id: ObjectId,
        offset: u64,
        frames: &mut Frames,
    ) -> Option<u32> {
        let object = self.0.get_mut(&id)?;
        let page = offset / PAGE_SIZE;
        if let Some(frame) = object.table.get(page) {
            return Some(frame);
        }
        let frame = frames.allocate()?;
        fill(&object.content, page * PAGE_SIZE, frames.get_mut(frame));
        object.table.set(page, frame, frames);
        Some(frame)
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

    /// The content before it is written.
    pub(super) fn content(&self, id: ObjectId) -> &[u8] {
        self.0.get(&id).map_or(&[], |object| &object.content)
    }

    /// Fills `to`, which is inside a page, from an offset.
    pub(super) fn load(&self, id: ObjectId, offset: u64, to: &mut [u8], frames: &Frames) {
        match self.frame(id, offset) {
            Some(frame) => {
                let in_page = (offset % PAGE_SIZE) as usize;
                to.copy_from_slice(&frames.get(frame)[in_page..][..to.len()]);
            }
            None => fill(self.content(id), offset, to),
        }
    }

    /// Makes the bytes from `size` on zero.
    pub(super) fn truncate(&mut self, id: ObjectId, size: u64, frames: &mut Frames) {
        let Some(object) = self.0.get_mut(&id) else {
            return;
        };
        if let Ok(size) = usize::try_from(size)
            && let Some(content) = object.content.part(0..size)
        {
            object.content = content;
        }
        object
            .table
            .clear(&(size.div_ceil(PAGE_SIZE)..PAGES), frames);
        if let Some(frame) = object.table.get(size / PAGE_SIZE) {
            frames.save(frame);
            frames.code_changed(frame);
            frames.get_mut(frame)[(size % PAGE_SIZE) as usize..].fill(0);
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
    pub(super) fn copy(&self, copies: &mut Copies) -> Objects {
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
