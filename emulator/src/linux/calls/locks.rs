//! Locks of files: `flock`, and the locks of `fcntl`.
//!
//! Source: Linux 6.12 `fs/locks.c`.

use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::Shared;
use crate::linux::locks::{Holder, LAST, Lock};
use crate::linux::objects::Object;

/// Commands of `fcntl`: locks of the process, and from here on those of the open file.
pub(super) const GETLK: u32 = 5;
pub(super) const SETLK: u32 = 6;
pub(super) const SETLKW: u32 = 7;
pub(super) const OFD_GETLK: u32 = 36;
pub(super) const OFD_SETLK: u32 = 37;
pub(super) const OFD_SETLKW: u32 = 38;
/// Types of locks: shared, exclusive, none.
const READ: u8 = 0;
const UNLOCK: u8 = 2;

impl Kernel {
    /// The number by which an open file has locks.
    pub(super) fn open_number(&mut self, open: &Shared) -> u32 {
        let lock = &mut open.borrow_mut().lock;
        lock.get_or_insert_with(|| self.objects.add(Object::Lock))
            .id
    }

    /// Reads a `struct flock`: the type, and the lock that it describes.
    fn lock_at(&mut self, open: &Shared, command: u32, at: u64) -> Answer<(u8, Lock)> {
        let lock = self.bytes::<32>(at)?;
        // `struct flock`: `l_type` at 0, `l_whence` at 2, `l_start` at 8, `l_len` at 16, `l_pid` at
        // 24.
        let word = |from: usize| i64::from_le_bytes(std::array::from_fn(|i| lock[from + i]));

        // `l_whence`: SEEK_SET, SEEK_CUR or SEEK_END.
        let base = match lock[2..4] {
            [0, 0] => 0,
            [1, 0] => open.borrow().position.cast_signed(),
            [2, 0] => open.borrow().size().unwrap_or(0).cast_signed(),
            _ => return Err(Errno::EINVAL),
        };

        let (offset, length) = (word(8), word(16));
        let start = base.checked_add(offset).ok_or(Errno::EOVERFLOW)?;
        if start < 0 {
            return Err(Errno::EINVAL);
        }

        // A length of 0 reaches to the end of any file; a negative one covers the bytes before the
        // start (fcntl(2)).
        let (first, last) = match length {
            0 => (start, i64::MAX),
            1.. => {
                let last = start.checked_add(length - 1);
                (start, last.ok_or(Errno::EOVERFLOW)?)
            }
            _ => (start.saturating_add(length), start - 1),
        };

        // `l_pid` must be 0 for locks of open files.
        let is_open_file = command >= OFD_GETLK;
        let owner = i32::from_le_bytes(std::array::from_fn(|i| lock[24 + i]));
        if first < 0 || lock[1] != 0 || lock[0] > UNLOCK || is_open_file && owner != 0 {
            return Err(Errno::EINVAL);
        }

        // A query needs no access, and `F_UNLCK` is not a lock that could be asked about.
        let is_query = matches!(command, GETLK | OFD_GETLK);
        match lock[0] {
            UNLOCK if is_query => return Err(Errno::EINVAL),
            _ if is_query => {}
            READ if !open.borrow().can_read() => return Err(Errno::EBADF),
            // F_WRLCK.
            1 if !open.borrow().can_write() => return Err(Errno::EBADF),
            _ => {}
        }

        let holder = if is_open_file {
            Holder::Open(self.open_number(open))
        } else {
            Holder::Process(self.process.number)
        };

        let lock_of = Lock {
            holder,
            writes: lock[0] == 1,
            first: first.cast_unsigned(),
            last: last.cast_unsigned(),
        };
        Ok((lock[0], lock_of))
    }

    pub(super) fn get_lock(&mut self, open: &Shared, command: u32, at: u64) -> Answer {
        let (_, wanted) = self.lock_at(open, command, at)?;
        let key = open.borrow().lock_key();
        let Some(lock) = self.system.locks.conflict(key, &wanted) else {
            return self.put(at, &[UNLOCK, 0]).map(|()| 0);
        };
        let process = match lock.holder {
            Holder::Process(number) => number,
            Holder::Open(_) => u32::MAX,
        };
        let length = match lock.last {
            LAST => 0,
            last => last - lock.first + 1,
        };
        // The start is counted from the start of the file.
        self.put(at, &[u8::from(lock.writes), 0, 0, 0])?;
        self.put_words(at.wrapping_add(8), &[lock.first, length])?;
        self.put_u32(at.wrapping_add(24), process)?;
        Ok(0)
    }

    pub(super) fn set_lock(&mut self, open: &Shared, command: u32, at: u64) -> Answer {
        let task = self.task();
        // Each try starts anew.
        self.system.locks.wait(task, None);

        let (kind, wanted) = self.lock_at(open, command, at)?;
        let key = open.borrow().lock_key();
        let conflict = match kind {
            UNLOCK => None,
            _ => self.system.locks.conflict(key, &wanted),
        };

        let Some(blocker) = conflict else {
            self.system.locks.set(key, wanted, kind == UNLOCK);
            let process = self.process.number;
            self.files.own.table.has_locks = self.system.locks.has_any(process);
            return Ok(0);
        };

        if matches!(command, SETLK | OFD_SETLK) {
            return Err(Errno::EAGAIN);
        }

        // Locks of open files have no process to follow (`posix_locks_deadlock`).
        if command == SETLKW {
            if self.system.locks.is_deadlock(task.process, &blocker) {
                return Err(Errno::EDEADLK);
            }
            self.system.locks.wait(task, Some((key, wanted)));
        }

        let interrupted = self.wait_or_restart();
        if interrupted != Err(Errno::WAITS) {
            self.system.locks.wait(task, None);
        }
        interrupted
    }

    pub(super) fn sys_flock(&mut self, fd: u64, operation: u64) -> Answer {
        const NONBLOCK: u32 = 4;
        const MANDATORY: u32 = 32;
        let operation = operation as u32;
        if operation & MANDATORY != 0 {
            // Ignored since Linux 5.15.
            return Ok(0);
        }
        let alone = match operation & !NONBLOCK {
            1 => Some(false),
            2 => Some(true),
            8 => None,
            _ => return Err(Errno::EINVAL),
        };
        let open = self.files.own.table.get(fd)?;
        let key = open.borrow().lock_key();
        let number = self.open_number(&open);
        match self.system.locks.set_whole(key, number, alone) {
            true => Ok(0),
            false if operation & NONBLOCK != 0 => Err(Errno::EAGAIN),
            false => self.wait_or_restart(),
        }
    }

    /// Drops the locks that the running process loses because it closed a descriptor.
    pub(in crate::linux) fn release_closed_locks(&mut self) {
        let table = &mut self.files.own.table;
        let closed = std::mem::take(&mut table.closed);
        let holder = Holder::Process(self.process.number);
        for file in closed {
            self.system.locks.release(holder, Some(file));
        }
    }
}
