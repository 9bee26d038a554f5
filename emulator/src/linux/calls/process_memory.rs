//! `/proc/PID/mem`: the memory of a process as a file, in which an address is a position.
//!
//! Source: Linux 6.12 `fs/proc/base.c` (`mem_rw`, `mem_open`, `mem_lseek`), `mm/memory.c`
//! (`__access_remote_vm`).

use crate::address_space::{Access, PAGE_SIZE, SpaceId};
use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{Files, Kind, Node, ResolvedPath, Shared, Special, o};
use std::ops::Range;

/// The address space that an open file shows.
pub(super) fn space_of(open: &Shared) -> Option<SpaceId> {
    match open.borrow().kind {
        Kind::ProcessMemory(space) => Some(space),
        _ => None,
    }
}

/// Calls `copy` for each part of a range that is in one page, with its address and its place in the range, as
/// long as it succeeds; the number of bytes of those that did.
fn in_pages(at: u64, size: usize, mut copy: impl FnMut(u64, Range<usize>) -> bool) -> usize {
    let mut done = 0;
    while done < size {
        let Some(from) = at.checked_add(done as u64) else {
            break;
        };
        let count = (size - done).min((PAGE_SIZE - from % PAGE_SIZE) as usize);
        if !copy(from, done..done + count) {
            break;
        }
        done += count;
    }
    done
}

impl Kernel {
    /// Opens the memory of a process, if this is what a path names; `None` otherwise.
    pub(super) fn open_process_memory(
        &mut self,
        resolved: &ResolvedPath,
        flags: u32,
    ) -> Option<Answer<Shared>> {
        let Node::Special(Special::Memory(task)) = resolved.node else {
            return None;
        };
        if flags & o::PATH != 0 {
            return None;
        }
        if self.may_access(task.process).is_err() {
            return Some(Err(Errno::EACCES));
        }
        // One that has ended has no memory.
        let space = self.process(task.process).map(|process| process.space);
        let space = space.ok_or(Errno::ESRCH);
        Some(space.map(|space| {
            let kind = Kind::ProcessMemory(space);
            Files::description(kind, flags, &resolved.path).shared()
        }))
    }

    /// Whether a process still uses an address space: what was opened of a program that has ended, or that
    /// another one has replaced, is empty.
    fn is_in_use(&self, space: SpaceId) -> bool {
        let mut all = self.all_processes();
        all.any(|process| !process.has_ended && process.space == space)
    }

    pub(super) fn read_process_memory(
        &mut self,
        open: &Shared,
        to: u64,
        count: u64,
        from: Option<u64>,
    ) -> Answer {
        let Some(space) = space_of(open).filter(|&space| self.is_in_use(space)) else {
            return Ok(0);
        };

        let start = from.unwrap_or(open.borrow().position);
        let mut done = 0;
        let mut buffer = vec![0; count.min(PAGE_SIZE) as usize];

        while done < count {
            let want = (count - done).min(PAGE_SIZE) as usize;
            let at = start.wrapping_add(done);
            let got = self.peek_space(space, at, &mut buffer[..want]);
            // `mem_rw` (`fs/proc/base.c`) fails only if the first page cannot be read.
            if got == 0 && done == 0 {
                return Err(Errno::EIO);
            }

            if let Err(error) = self.put(to.wrapping_add(done), &buffer[..got]) {
                return if done == 0 { Err(error) } else { Ok(done) };
            }

            done += got as u64;

            // The next page cannot be read: a shorter read is no error.
            if got < want {
                break;
            }
        }

        // `pread` does not move the position.
        if from.is_none() {
            open.borrow_mut().position = start.wrapping_add(done);
        }
        Ok(done)
    }

    pub(super) fn write_process_memory(
        &mut self,
        open: &Shared,
        from: u64,
        count: u64,
        to: Option<u64>,
    ) -> Answer {
        // The process has ended: nothing is written, and that is no error (`mem_rw`).
        let Some(space) = space_of(open).filter(|&space| self.is_in_use(space)) else {
            return Ok(0);
        };

        let start = to.unwrap_or(open.borrow().position);
        let mut done = 0;

        // A page at a time, so that a large count does not need as much memory.
        let mut buffer = vec![0; count.min(PAGE_SIZE) as usize];

        while done < count {
            let want = (count - done).min(PAGE_SIZE) as usize;
            if let Err(error) = self.get(from.wrapping_add(done), &mut buffer[..want]) {
                return if done == 0 { Err(error) } else { Ok(done) };
            }

            let got = self.poke_space(space, start.wrapping_add(done), &buffer[..want]);
            // As for a read, only the first page can fail.
            if got == 0 && done == 0 {
                return Err(Errno::EIO);
            }

            done += got as u64;
            if got < want {
                break;
            }
        }

        if to.is_none() {
            open.borrow_mut().position = start.wrapping_add(done);
        }
        Ok(done)
    }

    /// `lseek`: every address is a position.
    pub(super) fn seek_process_memory(open: &Shared, offset: u64, whence: u32) -> Answer {
        let mut open = open.borrow_mut();
        open.position = match whence {
            0 => offset,
            1 => open.position.wrapping_add(offset),
            _ => return Err(Errno::EINVAL),
        };
        Ok(open.position)
    }

    /// Reads an address space regardless of permissions; the number of bytes read.
    pub(super) fn peek_space(&self, space: SpaceId, at: u64, to: &mut [u8]) -> usize {
        let memory = &self.machine.core.memory;
        in_pages(at, to.len(), |from, range| {
            memory.peek_in(space, from, &mut to[range]).is_ok()
        })
    }

    /// Writes to an address space, also what its process may not write, unless others see it, too
    /// (`FOLL_FORCE`); the number of bytes written.
    pub(super) fn poke_space(&mut self, space: SpaceId, at: u64, bytes: &[u8]) -> usize {
        let memory = &mut self.machine.core.memory;
        let done = memory.with_space(space, |memory| {
            in_pages(at, bytes.len(), |to, range| {
                let area = memory.area(to).map(|(_, area)| area);
                let may = area.is_some_and(|area| {
                    area.object().is_none() || area.permissions().allow(Access::Write)
                });
                may && memory.poke(to, &bytes[range]).is_ok()
            })
        });
        let done = done.unwrap_or(0);
        if done > 0 {
            self.disturbed_memory(space, at..at + done as u64);
        }
        done
    }
}
