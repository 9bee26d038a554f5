//! What `inotify` watches, and the events that were not read.
//!
//! Source: Linux 6.12 `fs/notify/inotify`, `include/uapi/linux/inotify.h`.

use std::collections::{BTreeMap, VecDeque};

/// Events and flags of `inotify`.
pub(in crate::linux) mod event {
    pub(in crate::linux) const ACCESS: u32 = 1;
    pub(in crate::linux) const MODIFY: u32 = 2;
    pub(in crate::linux) const ATTRIB: u32 = 4;
    pub(in crate::linux) const CLOSE_WRITE: u32 = 8;
    pub(in crate::linux) const CLOSE_NOWRITE: u32 = 0x10;
    pub(in crate::linux) const OPEN: u32 = 0x20;
    pub(in crate::linux) const MOVED_FROM: u32 = 0x40;
    pub(in crate::linux) const MOVED_TO: u32 = 0x80;
    pub(in crate::linux) const CREATE: u32 = 0x100;
    pub(in crate::linux) const DELETE: u32 = 0x200;
    pub(in crate::linux) const DELETE_SELF: u32 = 0x400;
    pub(in crate::linux) const MOVE_SELF: u32 = 0x800;
    /// All events.
    pub(in crate::linux) const ALL: u32 = 0xfff;
    pub(in crate::linux) const OVERFLOW: u32 = 0x4000;
    /// The watch was removed.
    pub(in crate::linux) const IGNORED: u32 = 0x8000;
    pub(in crate::linux) const ONLYDIR: u32 = 0x100_0000;
    pub(in crate::linux) const DONT_FOLLOW: u32 = 0x200_0000;
    pub(in crate::linux) const EXCL_UNLINK: u32 = 0x400_0000;
    pub(in crate::linux) const MASK_CREATE: u32 = 0x1000_0000;
    pub(in crate::linux) const MASK_ADD: u32 = 0x2000_0000;
    /// What it happened to is a folder.
    pub(in crate::linux) const ISDIR: u32 = 0x4000_0000;
    pub(in crate::linux) const ONESHOT: u32 = 0x8000_0000;
}

/// Maximum number of events that were not read (`fs.inotify.max_queued_events`).
const EVENTS_MAX: usize = 16384;

/// A file: device and inode number.
type FileId = (u64, u64);

/// An event, as it is read.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Event {
    watch: u32,
    mask: u32,
    /// The same for both halves of a renaming.
    cookie: u32,
    /// The name in the watched folder; empty for the watched file itself.
    name: Vec<u8>,
}

impl Event {
    /// `struct inotify_event`; names are padded to 16 bytes.
    fn bytes(&self) -> Vec<u8> {
        let length = match self.name.len() {
            0 => 0,
            length => (length + 1).next_multiple_of(16),
        };
        let words = [self.watch, self.mask, self.cookie, length as u32];
        let mut bytes = words.map(u32::to_le_bytes).as_flattened().to_vec();
        bytes.extend_from_slice(&self.name);
        bytes.resize(16 + length, 0);
        bytes
    }
}

/// An instance of `inotify`.
#[derive(Clone, Default, Debug)]
pub(in crate::linux) struct Inotify {
    /// By number: the file, and the events.
    watches: BTreeMap<u32, (FileId, u32)>,
    last: u32,
    events: VecDeque<Event>,
}

impl Inotify {
    /// The number of the watch of a file.
    pub(in crate::linux) fn watch_of(&self, file: FileId) -> Option<u32> {
        let mut all = self.watches.iter();
        all.find(|(_, (key, _))| *key == file)
            .map(|(&number, _)| number)
    }

    /// The mask of a watch.
    pub(in crate::linux) fn mask_mut(&mut self, watch: u32) -> Option<&mut u32> {
        self.watches.get_mut(&watch).map(|(_, mask)| mask)
    }

    pub(in crate::linux) fn add(&mut self, file: FileId, mask: u32) -> u32 {
        self.last += 1;
        self.watches.insert(self.last, (file, mask));
        self.last
    }

    /// Removes a watch. False if there is none.
    pub(in crate::linux) fn remove(&mut self, watch: u32) -> bool {
        let removed = self.watches.remove(&watch).is_some();
        if removed {
            self.queue(watch, event::IGNORED, 0, b"");
        }
        removed
    }

    fn queue(&mut self, watch: u32, mask: u32, cookie: u32, name: &[u8]) {
        let event = Event {
            watch,
            mask,
            cookie,
            name: name.to_vec(),
        };
        if self.events.back() == Some(&event) {
            return;
        }
        match self.events.len() {
            ..EVENTS_MAX => self.events.push_back(event),
            EVENTS_MAX => self.events.push_back(Event {
                watch: u32::MAX,
                mask: event::OVERFLOW,
                cookie: 0,
                name: Vec::new(),
            }),
            _ => {}
        }
    }

    /// Something happened to a file, or to a name in it. True if there is an event.
    pub(in crate::linux) fn happened(
        &mut self,
        file: FileId,
        mask: u32,
        cookie: u32,
        name: &[u8],
    ) -> bool {
        let Some(watch) = self.watch_of(file) else {
            return false;
        };
        let wanted = self.watches.get(&watch).map_or(0, |(_, wanted)| *wanted);
        let is_wanted = wanted & mask & event::ALL != 0;
        if is_wanted {
            self.queue(watch, mask, cookie, name);
        }
        let is_gone = mask & event::DELETE_SELF != 0 && name.is_empty();
        if is_gone || is_wanted && wanted & event::ONESHOT != 0 {
            self.remove(watch);
        }
        is_wanted || is_gone
    }

    /// The number of bytes to read.
    pub(in crate::linux) fn bytes(&self) -> u64 {
        self.events
            .iter()
            .map(|event| event.bytes().len() as u64)
            .sum()
    }

    pub(in crate::linux) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Takes as many events as fit. `None` if the first one does not.
    pub(in crate::linux) fn take(&mut self, most: u64) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        while let Some(event) = self.events.front() {
            let next = event.bytes();
            if (bytes.len() + next.len()) as u64 > most {
                return (!bytes.is_empty()).then_some(bytes);
            }
            bytes.extend(next);
            self.events.pop_front();
        }
        Some(bytes)
    }
}
