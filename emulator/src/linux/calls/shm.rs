//! System V shared memory.
//!
//! Source: Linux 6.12 `ipc/shm.c`, `include/uapi/linux/shm.h`.

use super::mapped::Content;
use crate::address_space::{self, PAGE_SIZE, Permissions};
use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::ipc::{Owner, READ, Segment, WRITE};
use crate::linux::layout::FileMapping;
use std::rc::Rc;

/// Commands of `shmctl`, `semctl` and `msgctl`.
pub(super) const IPC_RMID: u32 = 0;
pub(super) const IPC_SET: u32 = 1;
pub(super) const IPC_STAT: u32 = 2;
pub(super) const IPC_INFO: u32 = 3;
const SHM_LOCK: u32 = 11;
const SHM_UNLOCK: u32 = 12;
const SHM_STAT: u32 = 13;
const SHM_INFO: u32 = 14;
const SHM_STAT_ANY: u32 = 15;
/// `SHMMNI`.
const SEGMENTS_MAX: usize = 4096;
/// `SHMMAX` and `SHMALL`.
const SIZE_MAX: u64 = u64::MAX - (1 << 24);

impl Kernel {
    /// The time for `shm_ctime` and the like, seconds.
    pub(super) fn seconds(&self) -> i64 {
        self.clock.time().seconds
    }

    pub(super) fn sys_shmget(&mut self, key: u64, size: u64, flags: u64) -> Answer {
        const HUGETLB: u32 = 0o4000;

        let (key, flags) = (key as u32, flags as u32);
        self.remove_segments();
        // A segment that there is may be larger, but not smaller (shmget(2)).
        let check = |segment: &Segment| {
            if segment.size < size {
                Err(Errno::EINVAL)
            } else {
                Ok(())
            }
        };

        let identity = self.files.own.identity.clone();
        if let Some(number) = self
            .system
            .ipc
            .segments
            .find(key, flags, &identity, check)?
        {
            return Ok(number.into());
        }

        // `SHMMIN` is 1.
        if !(1..=SIZE_MAX).contains(&size) {
            return Err(Errno::EINVAL);
        }
        if flags & HUGETLB != 0 {
            return self.not_modelled("shmget: huge pages", Errno::ENOMEM);
        }

        let memory = &mut self.machine.core.memory;
        let object = memory.create_object(address_space::Content::empty());
        memory.set_object_size(object, size.next_multiple_of(PAGE_SIZE));

        let segment = Segment {
            memory: object,
            size,
            times: [0, 0, self.clock.time().seconds],
            processes: [self.process.number, 0],
            is_removed: false,
            is_locked: false,
        };

        let segments = &mut self.system.ipc.segments;
        let added = segments.add(key, flags, &identity, SEGMENTS_MAX, segment);

        // The object of a segment that was refused would never be released.
        if added.is_err() {
            self.machine.core.memory.release_object(object);
        }
        Ok(added?.into())
    }

    pub(super) fn sys_shmat(&mut self, number: u64, at: u64, flags: u64) -> Answer {
        const RDONLY: u32 = 0o1_0000;
        const RND: u32 = 0o2_0000;
        const REMAP: u32 = 0o4_0000;
        const EXEC: u32 = 0o10_0000;

        let flags = flags as u32;
        if (number as i32) < 0 {
            return Err(Errno::EINVAL);
        }

        let replaces = flags & REMAP != 0;
        let start = match at % PAGE_SIZE {
            0 => at,
            _ if flags & RND != 0 => at - at % PAGE_SIZE,
            _ => return Err(Errno::EINVAL),
        };

        // There must be something to replace (shmat(2)).
        if replaces && start == 0 {
            return Err(Errno::EINVAL);
        }

        // First those that nobody has any more, so that they cannot be found.
        self.remove_segments();

        // The rights that are needed, as bits of a mode.
        let wanted = READ
            | if flags & RDONLY == 0 { WRITE } else { 0 }
            | if flags & EXEC == 0 { 0 } else { 0o111 };

        let identity = self.files.own.identity.clone();
        let segments = &self.system.ipc.segments;
        let (owner, segment) = segments.usable(number as u32, &identity, wanted)?;
        let (key, size, memory) = (owner.key, segment.size, segment.memory);

        let size = size
            .checked_next_multiple_of(PAGE_SIZE)
            .ok_or(Errno::ENOMEM)?;

        // An address of 0 lets the kernel choose (shmop(2)).
        let range = match start {
            0 => self.place(0, size, 0)?,
            start => {
                let range = self.place(start, size, super::memory::MAP_FIXED)?;
                if !replaces && !self.is_free(&range) {
                    return Err(Errno::EINVAL);
                }
                range
            }
        };

        let may = Permissions::new(true, flags & RDONLY == 0, flags & EXEC != 0);
        let file = FileMapping {
            // As /proc/PID/maps shows it (`ipc/shm.c`).
            path: Rc::from(format!("/SYSV{key:08x} (deleted)").into_bytes()),
            offset: 0,
            object: None,
            is_shared: true,
            is_writable: flags & RDONLY == 0,
            memory: Some(memory),
        };
        let content = Content {
            file,
            bytes: address_space::Content::empty(),
            held: size,
        };

        let start = range.start;
        self.map(&range, may, Some(content))?;

        // `shm_atime` and `shm_lpid`.
        let (seconds, process) = (self.seconds(), self.process.number);
        let (_, segment) = self.system.ipc.segments.get_mut(number as u32)?;
        segment.times[0] = seconds;
        segment.processes[1] = process;
        Ok(start)
    }

    pub(super) fn sys_shmdt(&mut self, at: u64) -> Answer {
        if !at.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }

        // It must be the start of what was attached (shmop(2)).
        let file = self
            .process
            .layout
            .file_at(at)
            .filter(|file| file.offset == 0);
        let memory = file.and_then(|file| file.memory).ok_or(Errno::EINVAL)?;

        let mut segments = self.system.ipc.segments.iter();
        let found = segments.find(|(_, _, segment)| segment.memory == memory);
        let found = found.map(|(number, _, segment)| (number, segment.size));
        drop(segments);
        let (number, size) = found.ok_or(Errno::EINVAL)?;

        let end = at.saturating_add(size);
        let parts = self.process.layout.mappings_with(memory);

        // Other calls may have split the mapping; all its parts go (`ksys_shmdt`).
        for (range, file) in parts {
            if range.start < end && range.start.checked_sub(file.offset) == Some(at) {
                self.unmap(range)?;
            }
        }

        // `shm_dtime` and `shm_lpid`.
        let (seconds, process) = (self.seconds(), self.process.number);
        let (_, segment) = self.system.ipc.segments.get_mut(number)?;
        segment.times[1] = seconds;
        segment.processes[1] = process;

        self.remove_segments();
        Ok(0)
    }

    /// How often a segment is attached. Of processes that share memory, one counts.
    fn attached(&self, segment: &Segment) -> usize {
        let all = self.all_processes();
        let own = all.filter(|process| !process.has_ended && !process.borrows);
        own.map(|process| process.layout.mappings_with(segment.memory).len())
            .sum()
    }

    /// Drops the segments that were removed and are no longer attached.
    fn remove_segments(&mut self) {
        let all = self.system.ipc.segments.iter();
        let gone = all.filter(|(_, _, segment)| segment.is_removed && self.attached(segment) == 0);
        let gone: Vec<u32> = gone.map(|(number, ..)| number).collect();
        for number in gone {
            if let Some(segment) = self.system.ipc.segments.remove(number) {
                self.machine.core.memory.release_object(segment.memory);
            }
        }
    }

    pub(super) fn sys_shmctl(&mut self, number: u64, command: u64, to: u64) -> Answer {
        let (number, command) = (number as u32, command as u32);
        // Before anything else (`ksys_shmctl`).
        if number.cast_signed() < 0 || command.cast_signed() < 0 {
            return Err(Errno::EINVAL);
        }

        self.remove_segments();
        let identity = self.files.own.identity.clone();
        match command {
            IPC_INFO => {
                // `struct shminfo64`: shmmax, shmmin, shmmni, shmseg, shmall, and four unused
                // words.
                self.put_words(
                    to,
                    &[
                        SIZE_MAX,
                        1,
                        SEGMENTS_MAX as u64,
                        SEGMENTS_MAX as u64,
                        SIZE_MAX,
                    ],
                )?;
                self.put_words(to.wrapping_add(40), &[0; 4])?;
                Ok(self.system.ipc.segments.index_max().into())
            }
            SHM_INFO => {
                let segments = &self.system.ipc.segments;
                let used = segments.len() as u64;
                let pages =
                    |(_, _, segment): (u32, &Owner, &Segment)| segment.size.div_ceil(PAGE_SIZE);
                let total: u64 = segments.iter().map(pages).sum();
                // `struct shm_info`: used_ids, shm_tot, shm_rss, shm_swp, swap_attempts,
                // swap_successes.
                self.put_words(to, &[used, total, 0, 0, 0, 0])?;
                Ok(self.system.ipc.segments.index_max().into())
            }
            IPC_STAT | SHM_STAT | SHM_STAT_ANY => {
                let segments = &self.system.ipc.segments;
                let (number, owner, segment) = segments.named(number, command != IPC_STAT)?;
                // SHM_STAT_ANY needs no permission (shmctl(2)).
                if command != SHM_STAT_ANY && !owner.allows(&identity, READ) {
                    return Err(Errno::EACCES);
                }

                let mut owner = *owner;
                // SHM_DEST, SHM_LOCKED.
                owner.mode |=
                    u32::from(segment.is_removed) << 9 | u32::from(segment.is_locked) << 10;
                if segment.is_removed {
                    owner.key = 0;
                }

                let [attached, detached, changed] = segment.times.map(i64::cast_unsigned);
                let [creator, last] = segment.processes.map(u64::from);
                let count = self.attached(segment) as u64;
                // The fields of `struct shmid64_ds` after `shm_perm`.
                let words = [
                    segment.size,
                    attached,
                    detached,
                    changed,
                    creator | last << 32,
                    count,
                    0,
                    0,
                ];

                self.put(to, &owner.bytes())?;
                self.put_words(to.wrapping_add(48), &words)?;
                Ok(if command == IPC_STAT {
                    0
                } else {
                    number.into()
                })
            }
            IPC_SET | IPC_RMID => {
                // Read before the segment is looked for: EFAULT comes before EINVAL. A `struct
                // shmid64_ds` has 112 bytes.
                let new = match command {
                    IPC_SET => Some(self.bytes::<112>(to)?),
                    _ => None,
                };

                let seconds = self.seconds();
                let (owner, segment) = self.system.ipc.segments.get_mut(number)?;
                if !owner.may_control(&identity) {
                    return Err(Errno::EPERM);
                }

                match new {
                    Some(new) => {
                        set_owner(owner, &new)?;
                        segment.times[2] = seconds;
                    }
                    None => {
                        segment.is_removed = true;
                        // Nobody finds it by its key.
                        owner.key = 0;
                    }
                }

                self.remove_segments();
                Ok(0)
            }
            SHM_LOCK | SHM_UNLOCK => {
                let (owner, segment) = self.system.ipc.segments.get_mut(number)?;
                if !owner.may_control(&identity) {
                    return Err(Errno::EPERM);
                }
                segment.is_locked = command == SHM_LOCK;
                Ok(0)
            }
            _ => Err(Errno::EINVAL),
        }
    }
}

/// Takes user, group and permissions from the `struct ipc64_perm` at the start of `new`.
pub(super) fn set_owner(owner: &mut Owner, new: &[u8]) -> Answer<()> {
    let word = |index: usize| {
        let bytes = new.get(4 * index..4 * index + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let (uid, gid, mode) = (word(1), word(2), word(5));
    let (uid, gid) = uid.zip(gid).ok_or(Errno::EFAULT)?;
    if uid == u32::MAX || gid == u32::MAX {
        return Err(Errno::EINVAL);
    }
    (owner.uid, owner.gid) = (uid, gid);
    owner.mode = mode.unwrap_or(0) & 0o777;
    Ok(())
}
