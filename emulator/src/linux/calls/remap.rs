//! `mremap`. Source: Linux 6.12 `mm/mremap.c`.

use super::mapped::Content;
use super::memory::MAP_FIXED;
use crate::address_space::{self, ObjectId, PAGE_SIZE, Permissions, TASK_SIZE};
use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::Kind;
use crate::linux::layout::FileMapping;
use std::ops::Range;

const MREMAP_MAYMOVE: u64 = 1;
const MREMAP_FIXED: u64 = 2;
const MREMAP_DONTUNMAP: u64 = 4;

impl Kernel {
    pub(super) fn sys_mremap(
        &mut self,
        start: u64,
        old_size: u64,
        new_size: u64,
        flags: u64,
        to: u64,
    ) -> Answer {
        let is_fixed = flags & MREMAP_FIXED != 0;
        let may_move = flags & MREMAP_MAYMOVE != 0;

        let known = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
        if flags & !known != 0 || is_fixed && !may_move || !start.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }

        let align = |size: u64| size.wrapping_add(PAGE_SIZE - 1) & !(PAGE_SIZE - 1);
        let (old_size, new_size) = (align(old_size), align(new_size));
        // MREMAP_DONTUNMAP moves pages, so both sizes must be the same (mremap(2)).
        if flags & MREMAP_DONTUNMAP != 0 && (!may_move || old_size != new_size) || new_size == 0 {
            return Err(Errno::EINVAL);
        }

        if is_fixed {
            let end = to.checked_add(new_size).filter(|&end| end <= TASK_SIZE);
            let end = end
                .filter(|_| to.is_multiple_of(PAGE_SIZE))
                .ok_or(Errno::EINVAL)?;

            // The new range must not overlap the old one.
            if to < start.saturating_add(old_size) && start < end {
                return Err(Errno::EINVAL);
            }
        }

        let area = self.machine.core.memory.area(start);
        let (area, may) = area
            .map(|(r, a)| (r, a.permissions()))
            .ok_or(Errno::EFAULT)?;

        // The permissions that were asked for: past the end of a file, the area has none.
        let may = self.process.layout.behind(start).unwrap_or(may);
        let named = self.process.layout.file_at(start);
        let is_shared = self.object_at(start).is_some();

        // An old size of 0 maps the same memory a second time, which needs shared memory.
        if old_size == 0 && !is_shared {
            return Err(Errno::EINVAL);
        }
        if old_size == 0 && flags & MREMAP_DONTUNMAP == 0 {
            if !may_move {
                return Err(Errno::ENOMEM);
            }
            return self.remap_again(start, new_size, is_fixed.then_some(to), may);
        }

        if flags & MREMAP_DONTUNMAP != 0 || old_size == 0 {
            return self.not_modelled("mremap that keeps the old mapping", Errno::EINVAL);
        }

        let old = start..start.checked_add(old_size).ok_or(Errno::EFAULT)?;
        // What shrinks never moves.
        if !is_fixed && new_size <= old_size {
            if new_size < old_size {
                self.unmap(start + new_size..old.end)?;
            }
            return Ok(start);
        }

        // One call resizes one mapping, never several (`vma_to_resize`).
        if !self.is_one_mapping(&area, &old, named.as_ref()) {
            return Err(Errno::EFAULT);
        }
        if new_size > TASK_SIZE {
            return Err(Errno::ENOMEM);
        }

        if let Some((object, offset)) = self.object_at(start) {
            let to = is_fixed.then_some(to);
            return self.remap_object(&old, new_size, may_move, to, (object, offset, may));
        }

        // Only what is added counts against the limits.
        self.may_map(new_size - old_size.min(new_size), may, true)?;
        // It grows in place where the pages behind it are free.
        let grown = old.end..old.start.saturating_add(new_size);
        if !is_fixed && self.is_free(&grown) {
            let content = match &named {
                Some(file) => Some(self.content_again(file, old_size, grown.end - grown.start)?),
                None => None,
            };
            self.map(&grown, may, content)?;
            return Ok(start);
        }

        if !may_move {
            return Err(Errno::ENOMEM);
        }

        let flags = if is_fixed { MAP_FIXED } else { 0 };
        let new = self.place(if is_fixed { to } else { 0 }, new_size, flags)?;
        let content = match &named {
            Some(file) => Some(self.content_again(file, 0, new_size)?),
            None => None,
        };

        // The pages move with what was written to them.
        self.map(&new, may, content)?;
        self.copy_pages(&old, &new)?;
        self.unmap(old)?;
        Ok(new.start)
    }

    /// The object that is shared at an address, and the offset in it. Pages past the end of a file
    /// have none of their own.
    fn object_at(&self, at: u64) -> Option<(ObjectId, u64)> {
        if let Some(file) = self
            .process
            .layout
            .file_at(at)
            .filter(|file| file.is_shared)
        {
            return Some((file.memory?, file.offset));
        }
        let (_, area) = self.machine.core.memory.area(at)?;
        let object = area.object().filter(|_| area.is_shared())?;
        Some((object, area.offset_at(at)?))
    }

    /// `mremap` of shared memory, which stays the same wherever it is.
    fn remap_object(
        &mut self,
        old: &Range<u64>,
        size: u64,
        may_move: bool,
        to: Option<u64>,
        (object, offset, may): (ObjectId, u64, Permissions),
    ) -> Answer {
        let old_size = old.end - old.start;
        let named = self.process.layout.file_at(old.start);
        let grown = old.end..old.start.saturating_add(size);
        if to.is_none() && self.is_free(&grown) {
            self.map_more(&grown, (object, offset + old_size, may), named)?;
            return Ok(old.start);
        }
        if !may_move {
            return Err(Errno::ENOMEM);
        }
        let flags = if to.is_some() { MAP_FIXED } else { 0 };
        let new = self.place(to.unwrap_or(0), size, flags)?;
        self.map_more(&new, (object, offset, may), named)?;
        self.unmap(old.clone())?;
        Ok(new.start)
    }

    /// `mremap` with an old size of 0: shows shared memory at a second place.
    fn remap_again(&mut self, at: u64, size: u64, to: Option<u64>, may: Permissions) -> Answer {
        let (object, offset) = self.object_at(at).ok_or(Errno::EINVAL)?;
        let named = self.process.layout.file_at(at);
        let flags = if to.is_some() { MAP_FIXED } else { 0 };
        let new = self.place(to.unwrap_or(0), size, flags)?;
        self.map_more(&new, (object, offset, may), named)?;
        Ok(new.start)
    }

    /// Maps shared memory from an offset on: that of a file up to its end, any other up to the end
    /// of what was mapped first.
    fn map_more(
        &mut self,
        range: &Range<u64>,
        (object, offset, may): (ObjectId, u64, Permissions),
        named: Option<FileMapping>,
    ) -> Answer<()> {
        let size = range.end - range.start;
        let key = named.as_ref().and_then(|file| file.object);

        // The file may have another end now than when it was mapped first.
        if let Some(file) = key.and_then(|key| self.objects.files.get(&key)) {
            let open = file.open.clone();
            let content = self.content(&open, offset, size, true)?;
            let content = content.zip(named).map(|(content, named)| Content {
                file: FileMapping { offset, ..named },
                ..content
            });
            return self.map(range, may, content);
        }

        // Other shared memory has the size that it was made with.
        let held = self.machine.core.memory.object_size(object).unwrap_or(0);
        let held = held.saturating_sub(offset).min(size);

        if let Some(named) = named {
            let content = Content {
                file: FileMapping { offset, ..named },
                bytes: address_space::Content::empty(),
                held,
            };
            return self.map(range, may, Some(content));
        }

        self.map(range, may, None)?;
        let shown = range.start..range.start + held;
        if !shown.is_empty() {
            let memory = &mut self.machine.core.memory;
            memory.map_shared(shown.clone(), may, object, offset)?;
        }

        // Past the end of the object nothing can be touched.
        if shown.end < range.end {
            let behind = shown.end..range.end;
            self.machine
                .core
                .memory
                .map(behind.clone(), Permissions::NONE)?;
            self.process.layout.set_behind(behind, Some(may));
        }
        Ok(())
    }

    /// Whether all of a range is one mapping, of a file or anonymous.
    fn is_one_mapping(
        &self,
        area: &Range<u64>,
        range: &Range<u64>,
        file: Option<&FileMapping>,
    ) -> bool {
        let Some(file) = file else {
            return self.is_one_of_zeros(area, range);
        };
        let last = range.end - PAGE_SIZE;
        let at_end = self.process.layout.file_at(last);
        at_end.is_some_and(|end| {
            end.object == file.object && end.offset == file.offset + (last - range.start)
        })
    }

    /// Linux merges neighbouring mappings with the same permissions.
    fn is_one_of_zeros(&self, area: &Range<u64>, range: &Range<u64>) -> bool {
        let memory = &self.machine.core.memory;
        let may = |at| memory.area(at).map(|(_, area)| area.permissions());
        let mut end = area.end;
        while end < range.end {
            match memory.area(end) {
                Some((next, _)) if may(end) == may(area.start) => end = next.end,
                _ => return false,
            }
            if self.process.layout.file_at(end - 1).is_some() {
                return false;
            }
        }
        true
    }

    /// The content of a mapped file, starting `skip` bytes after the start of the mapping.
    fn content_again(&mut self, file: &FileMapping, skip: u64, size: u64) -> Answer<Content> {
        let mut all = self.files.own.table.open().map(|(_, open)| open);
        let open = all.find(|open| {
            let is_file = matches!(open.borrow().kind, Kind::Host(_) | Kind::Memory(_));
            let attributes = self.files.attributes_of_open(&open.borrow());
            is_file && file.object == Some((attributes.device, attributes.inode))
        });
        let open = open.cloned();
        drop(all);
        let open = match open {
            Some(open) => Some(open),
            None => self.files.open_object(&file.path, file.object),
        };
        let found = match open {
            Some(open) => self.content(&open, file.offset + skip, size, file.is_shared)?,
            None => None,
        };
        match found {
            Some(content) => Ok(content),
            None => self.not_modelled("mremap of a file that is gone", Errno::ENOMEM),
        }
    }

    /// Copies the pages that differ.
    fn copy_pages(&mut self, from: &Range<u64>, to: &Range<u64>) -> Answer<()> {
        let size = (from.end - from.start).min(to.end - to.start);
        let (mut page, mut there) = ([0; PAGE_SIZE as usize], [0; PAGE_SIZE as usize]);
        for offset in (0..size).step_by(PAGE_SIZE as usize) {
            let memory = &mut self.machine.core.memory;
            // What was never touched is what the file holds, or zero, there as well as here.
            if !memory.has_frame(from.start + offset)
                || self.process.layout.behind(from.start + offset).is_some()
            {
                continue;
            }
            memory.peek(from.start + offset, &mut page)?;
            memory.peek(to.start + offset, &mut there)?;
            if page != there {
                memory.poke(to.start + offset, &page)?;
            }
        }
        Ok(())
    }
}
