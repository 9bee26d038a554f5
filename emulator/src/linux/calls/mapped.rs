//! Memory that shows files: what is stored to it reaches the file, and what is written to the file
//! reaches it.
//!
//! A file that a process maps with `MAP_SHARED` is shown by an object, which all share. The file
//! gets what was stored before the next call that any process makes, since only calls can see the
//! difference. Mappings that are older than the object have a copy of the file, which follows it.
//!
//! Source: Linux 6.12 `mm/filemap.c`, `mm/truncate.c`.

use crate::address_space::{self, AddressSpace, ObjectId, PAGE_SIZE, Permissions};
use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{Description, Device, Kind, Shared, become_copy, o};
use crate::linux::layout::{FileMapping, Layout};
use crate::linux::objects::MappedFile;
use std::ops::Range;
use std::rc::Rc;

/// What a mapping of a file shows.
pub(super) struct Content {
    pub(super) file: FileMapping,
    /// All of the file; nothing if an object shows it.
    pub(super) bytes: address_space::Content,
    /// The number of bytes from the offset on, of those that are mapped.
    pub(super) held: u64,
}

/// Another reference to a regular file.
pub(super) fn same_file(kind: &Kind) -> Option<Kind> {
    match kind {
        Kind::Host(file) => Some(Kind::Host(file.clone())),
        Kind::Memory(inode) => Some(Kind::Memory(inode.clone())),
        _ => None,
    }
}

impl Kernel {
    /// The bytes of a regular file, which are read when they are needed.
    fn bytes_of(&mut self, kind: &Kind) -> Answer<address_space::Content> {
        match kind {
            Kind::Host(file) => self.files.content(file, self.limits.bytes()),
            Kind::Memory(inode) => Ok(inode.borrow().data().content()),
            _ => Err(Errno::ENODEV),
        }
    }

    /// What a new mapping of an open file shows from `offset` on, at most `size` bytes. `None` for
    /// zeros.
    pub(super) fn content(
        &mut self,
        open: &Shared,
        offset: u64,
        size: u64,
        is_shared: bool,
    ) -> Answer<Option<Content>> {
        let key = {
            let open = open.borrow();
            match &open.kind {
                Kind::Host(_) | Kind::Memory(_) => {}
                // A mapping of /dev/zero is anonymous memory.
                Kind::Device(Device::Zero) => return Ok(None),
                _ => return Err(Errno::ENODEV),
            }
            let attributes = self.files.attributes_of_open(&open);
            (attributes.device, attributes.inode)
        };

        // A private mapping must also see what others write through a shared one.
        let memory = if self.objects.files.contains_key(&key) || is_shared {
            Some(self.memory_of_file(open, key)?)
        } else {
            None
        };

        // Shared memory has the bytes itself.
        let bytes = match memory {
            Some(_) => address_space::Content::empty(),
            None => self.bytes_of(&open.borrow().kind)?,
        };

        let open = open.borrow();
        let file = FileMapping {
            path: Rc::from(&open.path[..]),
            offset,
            object: Some(key),
            is_shared,
            is_writable: open.can_write(),
            memory,
        };

        Ok(Some(Content {
            file,
            bytes,
            held: open.size()?.saturating_sub(offset).min(size),
        }))
    }

    /// The object that shows a file, created if necessary.
    fn memory_of_file(&mut self, open: &Shared, key: (u64, u64)) -> Answer<ObjectId> {
        let own = {
            let open = open.borrow();
            let kind = same_file(&open.kind).ok_or(Errno::ENODEV)?;
            let flags = match &kind {
                Kind::Memory(_) => o::RDWR,
                _ => open.flags & o::ACCMODE,
            };
            Description::new(kind, flags, &open.path)
        };
        if let Some(mapped) = self.objects.files.get_mut(&key) {
            if own.can_write() {
                mapped.open = own.shared();
            }
            return Ok(mapped.memory);
        }
        let bytes = self.bytes_of(&own.kind)?;
        let memory = self.machine.core.memory.create_object(bytes);
        self.machine.core.memory.note_stores(memory);
        let open = own.shared();
        self.objects.files.insert(key, MappedFile { open, memory });
        Ok(memory)
    }

    /// Lets the open files that objects hold refer to the copy of their file, if it was copied into
    /// memory.
    pub(in crate::linux) fn follow_copies(&mut self) {
        for (identity, copy) in std::mem::take(&mut self.files.newly_copied) {
            for open in self.objects.others().held {
                become_copy(open, identity, &copy);
            }
        }
    }

    /// Writes what was stored to shared memory to the files, and forgets those that are no longer
    /// mapped.
    pub(in crate::linux) fn store_files(&mut self) {
        let keys: Vec<(u64, u64)> = self.objects.files.keys().copied().collect();
        for key in keys {
            let Some(MappedFile { open, memory }) = self.objects.files.get(&key).cloned() else {
                continue;
            };
            let pages = self.machine.core.memory.take_stored(memory);
            if !pages.is_empty() {
                self.store_file(&open, memory, &pages);
                self.refresh_copies(key, &open);
            }
            if !self.is_shown(key, memory) {
                self.machine.core.memory.release_object(memory);
                self.objects.files.remove(&key);
            }
        }
    }

    /// Whether any process has mapped an object that shows a file, perhaps past the file's end only.
    fn is_shown(&self, key: (u64, u64), memory: ObjectId) -> bool {
        let shows = |(_, file): &(Range<u64>, FileMapping)| file.memory == Some(memory);
        let mut processes = self.all_processes();
        self.machine.core.memory.is_mapped(memory)
            || processes.any(|process| process.layout.mappings_of(key).iter().any(shows))
    }

    /// Writes pages of an object to its file; what is past the end of the file stays in memory.
    fn store_file(&mut self, open: &Shared, memory: ObjectId, pages: &[u64]) {
        let size = open.borrow().size().unwrap_or(0);
        let mut page = [0; PAGE_SIZE as usize];
        for &offset in pages.iter().filter(|&&offset| offset < size) {
            let part = &mut page[..(size - offset).min(PAGE_SIZE) as usize];
            let read = self.machine.core.memory.read_object(memory, offset, part);
            let written = self.files.write(open, Some(offset), part);
            if read.is_err() || !matches!(written, Ok(Some(count)) if count == part.len()) {
                // Such as a full disk of the host.
                let what = "an error when shared memory is written to its file";
                self.notice(crate::linux::Notice::Part(what));
            }
        }
    }

    /// Bytes of an open file were written: every mapping of it shows them.
    pub(super) fn file_written(&mut self, open: &Shared, at: u64, bytes: &[u8]) {
        let Some(key) = self.key_if_mapped(open) else {
            return;
        };
        if let Some(file) = self.objects.files.get(&key) {
            let written = self
                .machine
                .core
                .memory
                .write_object(file.memory, at, bytes);
            if written.is_err() {
                let what = "more memory for a mapped file than there is";
                self.notice(crate::linux::Notice::Part(what));
            }
        }
        self.refresh_copies(key, open);
    }

    /// A hole was made in an open file: every mapping of it shows zeros there.
    pub(super) fn file_punched(&mut self, open: &Shared, hole: Range<u64>) {
        let Some(key) = self.key_if_mapped(open) else {
            return;
        };
        let bytes = self.bytes_of(&open.borrow().kind);
        if let Some(file) = self.objects.files.get(&key)
            && let Ok(bytes) = bytes
        {
            // This cannot fail: the object is there.
            let memory = &mut self.machine.core.memory;
            let _ = memory.punch_object(file.memory, hole, bytes);
        }
        self.refresh_copies(key, open);
    }

    /// An open file got another size: mappings end where it ends.
    pub(super) fn file_resized(&mut self, open: &Shared, old: u64) {
        if let Some(key) = self.key_if_mapped(open) {
            self.resized(key, open, old);
        }
    }

    /// Like [`Kernel::file_resized`], for a file that may not be open.
    pub(super) fn path_resized(&mut self, path: &[u8], key: (u64, u64), old: u64) {
        let mut processes = self.all_processes();
        if !processes.any(|process| !process.layout.mappings_of(key).is_empty()) {
            return;
        }
        drop(processes);
        let mapped = self.objects.files.get(&key).map(|file| file.open.clone());
        if let Some(open) = mapped.or_else(|| self.files.open_object(path, Some(key))) {
            self.resized(key, &open, old);
        }
    }

    fn resized(&mut self, key: (u64, u64), open: &Shared, old: u64) {
        let size = open.borrow().size().unwrap_or(0).min(old);
        if let Some(file) = self.objects.files.get(&key) {
            // This cannot fail: the object is there.
            let _ = self.machine.core.memory.truncate_object(file.memory, size);
        }
        self.refresh_copies(key, open);
    }

    /// The device and inode number of an open file, if it may be mapped.
    fn key_if_mapped(&self, open: &Shared) -> Option<(u64, u64)> {
        let open = open.borrow();
        let is_file = matches!(open.kind, Kind::Host(_) | Kind::Memory(_));
        let mut processes = self.all_processes();
        if !is_file || !processes.any(|process| process.layout.has_objects()) {
            return None;
        }
        let attributes = self.files.attributes_of_open(&open);
        Some((attributes.device, attributes.inode))
    }

    /// Updates all mappings of a file: pages of copies that the program has not written to get the
    /// new content, and mappings end where the file ends.
    fn refresh_copies(&mut self, key: (u64, u64), open: &Shared) {
        let size = open.borrow().size().unwrap_or(0);
        // What can no longer be read does not change.
        let Ok(bytes) = self.bytes_of(&open.borrow().kind) else {
            return;
        };
        let numbers: Vec<u32> = self.all_processes().map(|p| p.number).collect();
        for number in numbers {
            let process = match self.processes.get_mut(&number) {
                Some(parked) => &mut parked.process,
                None => &mut self.process,
            };
            for (range, file) in process.layout.mappings_of(key) {
                let length = range.end - range.start;
                let held = size.saturating_sub(file.offset).min(length);
                let memory = &mut self.machine.core.memory;
                let layout = &mut process.layout;
                memory.with_space(process.space, |memory| {
                    refresh(memory, layout, &range, &file, held, &bytes);
                });
            }
        }
    }
}

/// Updates a mapping, `held` bytes of which the file has. This cannot fail: the range is mapped.
fn refresh(
    memory: &mut AddressSpace,
    layout: &mut Layout,
    range: &Range<u64>,
    file: &FileMapping,
    held: u64,
    bytes: &address_space::Content,
) {
    let held = held.next_multiple_of(PAGE_SIZE);
    let end = range.start.saturating_add(held).min(range.end);

    // What was past the end, and no longer is, shows the file.
    for (behind, may) in layout.behind_in(&(range.start..end.max(range.start))) {
        let offset = file.offset + (behind.start - range.start);
        let _ = match file.memory {
            None => memory.map_file(behind.clone(), may, bytes.clone(), offset),
            Some(object) if file.is_shared => {
                memory.map_shared(behind.clone(), may, object, offset)
            }
            Some(object) => memory.map_private(behind.clone(), may, object, offset),
        };
        layout.set_behind(behind, None);
    }

    // Whole pages past the end of the file stay mapped, but nobody can touch them.
    if end < range.end {
        let parts: Vec<(Range<u64>, Permissions)> = memory
            .areas()
            .filter(|(area, _)| area.start < range.end && end < area.end)
            .map(|(area, a)| {
                let part = area.start.max(end)..area.end.min(range.end);
                (part, a.permissions())
            })
            .filter(|(part, _)| layout.behind(part.start).is_none())
            .collect();

        for (part, may) in parts {
            let _ = memory.map(part.clone(), Permissions::NONE);
            layout.set_behind(part, Some(may));
        }
    }

    // Shared memory has the bytes itself, so only copies of a file's content change.
    if end > range.start && file.memory.is_none() {
        let _ = memory.change_file(range.start..end, bytes, file.offset);
    }
}
