//! Copying between files, and reading and writing with flags.
//!
//! Source: Linux 6.12 `fs/read_write.c`.

use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{Kind, Shared, o};

/// Bytes copied at once.
const CHUNK: u64 = 1 << 16;
/// Maximum size of one call, bytes (Linux `MAX_RW_COUNT`).
const COUNT_MAX: u64 = 0x7fff_f000;

impl Kernel {
    /// The offset at an address, or the file's position.
    fn copy_offset(&self, open: &Shared, at: u64) -> Answer<u64> {
        match at {
            0 => Ok(open.borrow().position),
            at => self.u64_at(at),
        }
    }

    pub(super) fn sys_copy_file_range(&mut self, args: [u64; 6]) -> Answer {
        let [from, from_at, to, to_at, count, flags] = args;

        let from = self.files.own.table.get(from)?;
        let to = self.files.own.table.get(to)?;
        let (from_offset, to_offset) = (
            self.copy_offset(&from, from_at)?,
            self.copy_offset(&to, to_at)?,
        );

        // Linux reads both offsets before it looks at the flags.
        if flags as u32 != 0 {
            return Err(Errno::EINVAL);
        }

        // The checks have the order of `generic_copy_file_checks` (`fs/read_write.c`).
        let is_directory = |open: &Shared| matches!(open.borrow().kind, Kind::Directory(_));
        if is_directory(&from) || is_directory(&to) {
            return Err(Errno::EISDIR);
        }

        let is_regular = |open: &Shared| {
            matches!(
                open.borrow().kind,
                Kind::Host(_) | Kind::Memory(_) | Kind::Text(_)
            )
        };
        if !is_regular(&from) || !is_regular(&to) {
            return Err(Errno::EINVAL);
        }

        let appends = to.borrow().flags & o::APPEND != 0;
        if !from.borrow().can_read() || !to.borrow().can_write() || appends {
            return Err(Errno::EBADF);
        }

        let attributes = |open: &Shared| self.files.attributes_of_open(&open.borrow());
        let (source, target) = (attributes(&from), attributes(&to));
        if source.device != target.device {
            return Err(Errno::EXDEV);
        }

        // Positions are signed in the kernel (`loff_t`).
        if from_offset > i64::MAX as u64 || to_offset > i64::MAX as u64 {
            return Err(Errno::EINVAL);
        }
        let end = |offset: u64| offset.checked_add(count).ok_or(Errno::EOVERFLOW);
        end(from_offset)?;
        end(to_offset)?;

        // Only the bytes that the source has are copied, and only they can overlap.
        let count = count.min(source.size.saturating_sub(from_offset));
        if to_offset == i64::MAX as u64 {
            return Err(Errno::EFBIG);
        }
        let overlaps = from_offset < to_offset + count && to_offset < from_offset + count;
        if source.inode == target.inode && overlaps {
            return Err(Errno::EINVAL);
        }

        let count = count.min(COUNT_MAX);
        let mut buffer = vec![0; count.min(CHUNK) as usize];
        let mut done = 0;

        // In pieces: the caller's count must not decide how much memory is allocated.
        while done < count {
            let want = (count - done).min(CHUNK) as usize;
            let read = self
                .files
                .read(&from, Some(from_offset + done), &mut buffer[..want])?;
            let read = read.unwrap_or(0);
            let written = match self.write_bytes(&to, Some(to_offset + done), &buffer[..read]) {
                Ok(written) => written.unwrap_or(0),
                // An error counts only if nothing was copied.
                Err(error) if done == 0 => return Err(error),
                Err(_) => 0,
            };
            done += written as u64;
            if written == 0 {
                break;
            }
        }

        // An offset in memory advances there; without one, the file's position does.
        for (open, at, offset) in [(&from, from_at, from_offset), (&to, to_at, to_offset)] {
            match at {
                _ if done == 0 => {}
                0 => open.borrow_mut().position = offset + done,
                at => self.put_u64(at, offset + done)?,
            }
        }
        Ok(done)
    }

    /// `preadv2` and `pwritev2`: a position of -1 is the current one.
    pub(super) fn sys_readv2(&mut self, args: [u64; 6], writes: bool) -> Answer {
        /// `RWF_HIPRI`, `RWF_DSYNC`, `RWF_SYNC`, which change nothing here.
        const WITHOUT_EFFECT: u32 = 7;
        const APPEND: u32 = 16;
        /// Up to `RWF_APPEND`; kernels differ in newer ones.
        const KNOWN: u32 = 31;

        // The fifth argument, the upper half of the position, counts only on 32 bits
        // (`pos_from_hilo`).
        let [fd, at, count, low, _, flags] = args;
        let flags = flags as u32;
        let position = (low != u64::MAX).then_some(low);

        // A bad descriptor is reported before bad flags.
        if flags & !KNOWN != 0 {
            self.files.own.table.get(fd)?;
            return Err(Errno::EOPNOTSUPP);
        }

        if flags & !(WITHOUT_EFFECT | APPEND) != 0 || flags & APPEND != 0 && !writes {
            let what = "preadv2 and pwritev2 that must not wait";
            return self.not_modelled(what, Errno::EOPNOTSUPP);
        }

        if !writes {
            return self.sys_readv(fd, at, count, position);
        }

        // `RWF_APPEND` is `O_APPEND` for this one call.
        let open = self.files.own.table.get(fd)?;
        let before = open.borrow().flags;
        if flags & APPEND != 0 {
            open.borrow_mut().flags |= o::APPEND;
        }

        let written = self.sys_writev(fd, at, count, position);
        open.borrow_mut().flags = before;
        written
    }
}
