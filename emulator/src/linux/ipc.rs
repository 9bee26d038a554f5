//! System V IPC: shared memory segments, sets of semaphores, message queues, by number. Not here:
//! the calls (`calls::shm`, `calls::sem`, `calls::msg`).
//!
//! Source: Linux 6.12 `ipc/util.c`, `include/linux/ipc.h`.

use super::errno::{Answer, Errno};
use super::identity::Identity;
use super::task::Task;
use crate::address_space::ObjectId;
use std::collections::{BTreeMap, VecDeque};

/// Numbers that are used before they start again from 0 (`ipc_min_cycle`).
const CYCLE_MIN: u32 = 64;
/// The number of an object is its index, plus how often indices started again, times this.
const INDICES: u32 = 1 << 15;

/// Flags of `shmget` and the like.
pub(super) const CREAT: u32 = 0o1000;
pub(super) const EXCL: u32 = 0o2000;
pub(super) const NOWAIT: u32 = 0o4000;
/// Read and write permission, for all three kinds of users.
pub(super) const READ: u32 = 0o444;
pub(super) const WRITE: u32 = 0o222;

/// Who may use an object (`struct kern_ipc_perm`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) key: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    creator: [u32; 2],
    pub(super) mode: u32,
    sequence: u32,
}

impl Owner {
    /// Whether a process has all of these permissions (`ipcperms`).
    pub(super) fn allows(&self, who: &Identity, wanted: u32) -> bool {
        let wanted = (wanted >> 6 | wanted >> 3 | wanted) & 7;
        let user = who.user.effective;
        let is_in = |group| group == who.group.effective || who.groups.contains(&group);
        let shift = if user == self.creator[0] || user == self.uid {
            6
        } else if is_in(self.creator[1]) || is_in(self.gid) {
            3
        } else {
            0
        };
        wanted & !(self.mode >> shift) == 0 || who.is_capable()
    }

    /// Whether a process may change or remove the object.
    pub(super) fn may_control(&self, who: &Identity) -> bool {
        let user = who.user.effective;
        user == self.creator[0] || user == self.uid || who.is_capable()
    }

    /// `struct ipc64_perm`.
    pub(super) fn bytes(&self) -> [u8; 48] {
        let mut bytes = [0; 48];
        let [creator, group] = self.creator;
        let words = [
            self.key,
            self.uid,
            self.gid,
            creator,
            group,
            self.mode,
            self.sequence,
        ];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// Objects of one kind.
#[derive(Clone, Debug)]
pub(super) struct Ids<T> {
    /// By index.
    all: BTreeMap<u32, (Owner, T)>,
    last: Option<u32>,
    sequence: u32,
}

impl<T> Default for Ids<T> {
    fn default() -> Self {
        Ids {
            all: BTreeMap::new(),
            last: None,
            sequence: 0,
        }
    }
}

impl<T> Ids<T> {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The highest index in use, or 0.
    pub(super) fn index_max(&self) -> u32 {
        self.all.last_key_value().map_or(0, |(&index, _)| index)
    }

    fn number(index: u32, owner: &Owner) -> u32 {
        owner.sequence * INDICES + index
    }

    /// All objects, with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Owner, &T)> {
        let all = self.all.iter();
        all.map(|(&index, (owner, object))| (Ids::<T>::number(index, owner), owner, object))
    }

    /// The object of a number.
    ///
    /// # Errors
    /// `EINVAL` if there is none.
    pub(super) fn get(&self, number: u32) -> Answer<&(Owner, T)> {
        let found = self.all.get(&(number % INDICES));
        let found = found.filter(|(owner, _)| owner.sequence == number / INDICES);
        found.ok_or(Errno::EINVAL)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Answer<&mut (Owner, T)> {
        let found = self.all.get_mut(&(number % INDICES));
        let found = found.filter(|(owner, _)| owner.sequence == number / INDICES);
        found.ok_or(Errno::EINVAL)
    }

    /// The object with this number or, if `is_index`, at this index, and its number.
    ///
    /// # Errors
    /// `EINVAL` if there is none.
    pub(super) fn named(&self, number: u32, is_index: bool) -> Answer<(u32, &Owner, &T)> {
        if !is_index {
            let (owner, object) = self.get(number)?;
            return Ok((number, owner, object));
        }
        // Of a number, Linux takes the index too (`ipcid_to_idx`).
        let index = number % INDICES;
        let (owner, object) = self.all.get(&index).ok_or(Errno::EINVAL)?;
        Ok((Ids::<T>::number(index, owner), owner, object))
    }

    /// The object that a process may use so.
    pub(super) fn usable(&self, number: u32, who: &Identity, wanted: u32) -> Answer<&(Owner, T)> {
        let found = self.get(number)?;
        if found.0.allows(who, wanted) {
            Ok(found)
        } else {
            Err(Errno::EACCES)
        }
    }

    pub(super) fn remove(&mut self, number: u32) -> Option<T> {
        self.get(number).ok()?;
        self.all
            .remove(&(number % INDICES))
            .map(|(_, object)| object)
    }

    /// The number of an object with a key, for `shmget` and the like (`ipcget_public`). `None` if
    /// it has to be created.
    pub(super) fn find(
        &self,
        key: u32,
        flags: u32,
        who: &Identity,
        check: impl Fn(&T) -> Answer<()>,
    ) -> Answer<Option<u32>> {
        let found = self
            .iter()
            .find(|(_, owner, _)| key != 0 && owner.key == key);
        match found {
            None if key != 0 && flags & CREAT == 0 => Err(Errno::ENOENT),
            None => Ok(None),
            Some(_) if flags & CREAT != 0 && flags & EXCL != 0 => Err(Errno::EEXIST),
            Some((number, owner, object)) => {
                check(object)?;
                if owner.allows(who, flags) {
                    Ok(Some(number))
                } else {
                    Err(Errno::EACCES)
                }
            }
        }
    }

    /// Adds an object, and returns its number.
    ///
    /// # Errors
    /// `ENOSPC` if there are too many.
    pub(super) fn add(
        &mut self,
        key: u32,
        flags: u32,
        who: &Identity,
        max: usize,
        object: T,
    ) -> Answer<u32> {
        if self.all.len() >= max {
            return Err(Errno::ENOSPC);
        }

        // `ipc_idr_alloc` uses the numbers in turn, from a range half as large again as what is in
        // use.
        let end = CYCLE_MIN.max(self.all.len() as u32 * 3 / 2);
        let from = self.last.map_or(0, |last| last + 1);
        let mut free = (from..end).chain(0..end);
        let index = free.find(|index| !self.all.contains_key(index));
        let index = index.ok_or(Errno::ENOSPC)?;

        // The next round has another sequence number: what was removed is not found by its old
        // number.
        if self.last.is_some_and(|last| index <= last) {
            self.sequence = (self.sequence + 1) % (i32::MAX as u32 / INDICES);
        }

        self.last = Some(index);
        let owner = Owner {
            key,
            uid: who.user.effective,
            gid: who.group.effective,
            creator: [who.user.effective, who.group.effective],
            mode: flags & 0o777,
            sequence: self.sequence,
        };

        self.all.insert(index, (owner, object));
        Ok(Ids::<T>::number(index, &owner))
    }
}

/// A segment of shared memory.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) memory: ObjectId,
    /// As asked for, bytes.
    pub(super) size: u64,
    /// Seconds: attached, detached, changed.
    pub(super) times: [i64; 3],
    /// The creator, and the process that attached or detached it last.
    pub(super) processes: [u32; 2],
    /// It goes when nobody has attached it (`IPC_RMID`).
    pub(super) is_removed: bool,
    pub(super) is_locked: bool,
}

/// A semaphore.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Semaphore {
    pub(super) value: i32,
    /// The process that changed it last.
    pub(super) process: u32,
}

/// A set of semaphores.
#[derive(Clone, Debug)]
pub(super) struct Semaphores {
    pub(super) all: Vec<Semaphore>,
    /// Seconds: of the last operation, of the last change.
    pub(super) times: [i64; 2],
}

/// A message queue.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    pub(super) messages: VecDeque<(i64, Vec<u8>)>,
    pub(super) bytes_max: u64,
    /// Seconds: sent, received, changed.
    pub(super) times: [i64; 3],
    /// The processes that sent and received last.
    pub(super) processes: [u32; 2],
}

impl Queue {
    pub(super) fn bytes(&self) -> u64 {
        self.messages
            .iter()
            .map(|(_, text)| text.len() as u64)
            .sum()
    }
}

/// All objects of System V IPC.
#[derive(Clone, Default, Debug)]
pub(super) struct Ipc {
    pub(super) segments: Ids<Segment>,
    pub(super) semaphores: Ids<Semaphores>,
    pub(super) queues: Ids<Queue>,
    /// What is added to semaphores when a process ends (`SEM_UNDO`), by process and set.
    pub(super) undo: BTreeMap<(u32, u32), Vec<i32>>,
    /// The semaphores that threads wait for: the set, the semaphore, and whether it has to be 0.
    pub(super) waiting: BTreeMap<Task, (u32, usize, bool)>,
}

impl Ipc {
    /// Whether something is added to semaphores when a process ends.
    pub(super) fn undoes(&self, process: u32) -> bool {
        self.undo.keys().any(|(number, _)| *number == process)
    }
}
