//! The descriptor table: open files by number.

use super::description::{Kind, Shared};
use super::{Answer, Errno};

/// An entry of the descriptor table.
#[derive(Clone, Debug)]
pub(in crate::linux) struct Slot {
    pub(in crate::linux) open: Shared,
    pub(in crate::linux) close_on_exec: bool,
}

/// The descriptor table.
#[derive(Clone, Debug, Default)]
pub(in crate::linux) struct Table {
    slots: Vec<Option<Slot>>,
    /// Whether the process has locks of files, which it loses when it closes one.
    pub(in crate::linux) has_locks: bool,
    /// The files that it closed while it had locks, as [`super::Description::lock_key`] names them.
    pub(in crate::linux) closed: Vec<(u64, u64)>,
    /// Whether the process asked a message queue to tell it, which ends when it closes a descriptor
    /// of the queue.
    pub(in crate::linux) asks_queues: bool,
    /// The objects of which it closed a descriptor while it asked, by number. Some may be gone.
    pub(in crate::linux) closed_objects: Vec<u32>,
}

impl Table {
    /// The open file of a descriptor, for use.
    ///
    /// # Errors
    /// `EBADF`, also if it was opened with `O_PATH`, which only names a file.
    pub(in crate::linux) fn get(&self, fd: u64) -> Answer<Shared> {
        let open = self.get_named(fd)?;
        let is_path = matches!(open.borrow().kind, Kind::Path);
        if is_path { Err(Errno::EBADF) } else { Ok(open) }
    }

    /// The open file of a descriptor, also if it was opened with `O_PATH`.
    pub(in crate::linux) fn get_named(&self, fd: u64) -> Answer<Shared> {
        self.slot(fd).map(|slot| slot.open.clone())
    }

    /// The capacity of the table without more memory: what `select` looks at.
    pub(in crate::linux) fn room(&self) -> u64 {
        const AT_LEAST: usize = 64;
        self.slots.len().next_multiple_of(AT_LEAST).max(AT_LEAST) as u64
    }

    pub(in crate::linux) fn slot(&self, fd: u64) -> Answer<&Slot> {
        // A descriptor is an `int`: the upper half is ignored.
        let slot = self.slots.get(fd as u32 as usize);
        slot.and_then(Option::as_ref).ok_or(Errno::EBADF)
    }

    pub(in crate::linux) fn slot_mut(&mut self, fd: u64) -> Answer<&mut Slot> {
        let slot = self.slots.get_mut(fd as u32 as usize);
        slot.and_then(Option::as_mut).ok_or(Errno::EBADF)
    }

    /// Assigns the lowest free number that is at least `from` and below `limit`.
    pub(in crate::linux) fn insert(
        &mut self,
        open: Shared,
        close_on_exec: bool,
        from: u64,
        limit: u64,
    ) -> Answer {
        let free = |&fd: &u64| self.slot(fd).is_err();
        let fd = (from..limit).find(free).ok_or(Errno::EMFILE)?;
        self.set(fd, open, close_on_exec);
        Ok(fd)
    }

    /// EMFILE unless a number below `limit` is free.
    pub(in crate::linux) fn needs_free(&self, limit: u64) -> Answer<()> {
        let mut numbers = 0..limit;
        let is_free = numbers.any(|fd| self.slot(fd).is_err());
        if is_free { Ok(()) } else { Err(Errno::EMFILE) }
    }

    /// Assigns a number, replacing what had it. The caller has checked the limit.
    pub(in crate::linux) fn set(&mut self, fd: u64, open: Shared, close_on_exec: bool) {
        let index = fd as u32 as usize;
        if self.slots.len() <= index {
            self.slots.resize(index + 1, None);
        }
        self.note_closed(index);
        self.slots[index] = Some(Slot {
            open,
            close_on_exec,
        });
    }

    pub(in crate::linux) fn close(&mut self, fd: u64) -> Answer {
        self.slot(fd)?;
        self.note_closed(fd as u32 as usize);
        self.slots[fd as u32 as usize] = None;
        Ok(0)
    }

    /// Notes that a descriptor is closed, for locks and message queues.
    fn note_closed(&mut self, index: usize) {
        if !self.has_locks && !self.asks_queues {
            return;
        }
        let Some(Some(slot)) = self.slots.get(index) else {
            return;
        };
        let open = slot.open.borrow();
        if self.has_locks {
            self.closed.push(open.lock_key());
        }
        if self.asks_queues
            && let Kind::Object(handle) = &open.kind
        {
            self.closed_objects.push(handle.id);
        }
    }

    /// Closes all descriptors.
    pub(in crate::linux) fn close_all(&mut self) {
        self.slots.clear();
    }

    /// Closes the descriptors that `execve` closes.
    pub(in crate::linux) fn close_on_exec(&mut self) {
        for index in 0..self.slots.len() {
            let slot = self.slots[index].as_ref();
            if slot.is_some_and(|slot| slot.close_on_exec) {
                self.note_closed(index);
                self.slots[index] = None;
            }
        }
    }

    /// A copy of the table; `copy` returns the copy of an open file.
    pub(super) fn copy(&self, mut copy: impl FnMut(&Shared) -> Shared) -> Table {
        let slot = |slot: &Slot| Slot {
            open: copy(&slot.open),
            close_on_exec: slot.close_on_exec,
        };
        let mut slot = slot;
        let slots = self.slots.iter().map(|s| s.as_ref().map(&mut slot));
        Table {
            slots: slots.collect(),
            has_locks: self.has_locks,
            closed: self.closed.clone(),
            asks_queues: self.asks_queues,
            closed_objects: self.closed_objects.clone(),
        }
    }

    /// All open descriptors, ascending.
    pub(in crate::linux) fn open(&self) -> impl Iterator<Item = (u64, &Shared)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(fd, slot)| Some((fd as u64, &slot.as_ref()?.open)))
    }
}
