//! Memory: `mmap` and related calls. Not here: mapped files (`mapped`), `mremap` (`remap`).
//!
//! Source: Linux 6.12 `mm/mmap.c`, `mm/mprotect.c`, `mm/madvise.c`, `mm/msync.c`.

use super::mapped::Content;
use crate::address_space::{self, MMAP_MIN_ADDR, MapError, PAGE_SIZE, Permissions, TASK_SIZE};
use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{Kind, Shared, seal};
use crate::linux::observer::Event;
use crate::load::MMAP_BASE;
use std::ops::Range;

const PROT_WRITE: u64 = 2;
const MAP_SHARED: u64 = 1;
const MAP_PRIVATE: u64 = 2;
const MAP_SHARED_VALIDATE: u64 = 3;
const MAP_32BIT: u64 = 0x40;
const MAP_NORESERVE: u64 = 0x4000;
const MAP_GROWSDOWN: u64 = 0x100;
const MAP_HUGETLB: u64 = 0x4_0000;
/// The flags that `MAP_SHARED_VALIDATE` accepts (`LEGACY_MAP_MASK`), except huge pages.
const MAP_LEGACY: u64 = 0x7_f97f;
pub(super) const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;

impl From<MapError> for Errno {
    fn from(error: MapError) -> Errno {
        match error {
            MapError::Range { .. } | MapError::Object => Errno::EINVAL,
            MapError::Hole { .. } | MapError::Areas => Errno::ENOMEM,
        }
    }
}

fn permissions(prot: u64) -> Permissions {
    Permissions::new(prot & 1 != 0, prot & PROT_WRITE != 0, prot & 4 != 0)
}

/// Rounds a size up to whole pages.
fn pages(size: u64) -> Answer<u64> {
    let pages = size.checked_next_multiple_of(PAGE_SIZE);
    pages.filter(|&size| size <= TASK_SIZE).ok_or(Errno::ENOMEM)
}

/// A range of whole pages in user space.
fn range(start: u64, size: u64) -> Answer<Range<u64>> {
    let end = pages(size).map_err(|_| Errno::EINVAL)?.checked_add(start);
    let end = end.filter(|&end| end <= TASK_SIZE).ok_or(Errno::EINVAL)?;
    if start.is_multiple_of(PAGE_SIZE) && start < end {
        Ok(start..end)
    } else {
        Err(Errno::EINVAL)
    }
}

impl Kernel {
    pub(super) fn is_free(&self, range: &Range<u64>) -> bool {
        let areas = &self.machine.core.memory;
        let before_end = range.end.saturating_sub(1);
        areas.area(before_end).is_none()
            && areas.find_free(range.end - range.start, range.end) == Some(range.start)
    }

    /// Maps memory, and reports it.
    pub(super) fn map(
        &mut self,
        range: &Range<u64>,
        may: Permissions,
        content: Option<Content>,
    ) -> Answer<()> {
        let memory = &mut self.machine.core.memory;
        let mut named = None;
        let mut behind = None;

        match content {
            None => memory.map(range.clone(), may)?,
            Some(Content { file, bytes, held }) => {
                let (range, offset) = (range.clone(), file.offset);
                match file.memory {
                    // A file of the host that nobody has mapped shared needs no object.
                    None => memory.map_file(range.clone(), may, bytes, offset)?,
                    Some(object) if file.is_shared => {
                        memory.map_shared(range.clone(), may, object, offset)?;
                    }
                    // Private, but of a file that is in memory: others may still change pages that
                    // it has not written.
                    Some(object) => memory.map_private(range.clone(), may, object, offset)?,
                }
                let held = held.next_multiple_of(PAGE_SIZE);
                let end = range.start.saturating_add(held);
                if end < range.end {
                    // These pages are past the end of the file.
                    memory.map(end..range.end, Permissions::NONE)?;
                    behind = Some(end..range.end);
                }
                named = Some(file);
            }
        }

        // Also without a file: what was there may have had a name.
        self.process.layout.name(range.clone(), named.clone());
        if let Some(behind) = behind {
            self.process.layout.set_behind(behind, Some(may));
        }

        self.system.events.push(Event::Mapped {
            range: range.clone(),
            permissions: may,
            file: named.map(|file| (file.path, file.offset)),
            again: false,
        });
        Ok(())
    }

    pub(super) fn unmap(&mut self, range: Range<u64>) -> Answer<()> {
        if range.end <= MMAP_MIN_ADDR {
            return Ok(());
        }
        let range = range.start.max(MMAP_MIN_ADDR)..range.end;
        self.machine.core.memory.unmap(range.clone())?;
        self.process.layout.name(range.clone(), None);
        self.system.events.push(Event::Unmapped(range));
        Ok(())
    }

    /// The range for a new mapping.
    pub(super) fn place(&self, hint: u64, size: u64, flags: u64) -> Answer<Range<u64>> {
        let size = pages(size)?;

        if flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0 {
            if hint > TASK_SIZE - size {
                return Err(Errno::ENOMEM);
            }
            let range = range(hint, size)?;

            // `cap_mmap_addr` refuses what is below `vm.mmap_min_addr`.
            if range.start < MMAP_MIN_ADDR {
                return Err(Errno::EPERM);
            }
            if flags & MAP_FIXED_NOREPLACE != 0 && !self.is_free(&range) {
                return Err(Errno::EEXIST);
            }
            return Ok(range);
        }

        // MAP_32BIT asks for the lowest 2 GiB (mmap(2)).
        let top = if flags & MAP_32BIT != 0 {
            1 << 31
        } else {
            MMAP_BASE
        };

        // Without MAP_FIXED the address is a hint: it is rounded down, and ignored if it is taken.
        let hint = hint & !(PAGE_SIZE - 1);
        if hint >= MMAP_MIN_ADDR
            && let Ok(range) = range(hint, size)
            && range.end <= top.max(TASK_SIZE * u64::from(flags & MAP_32BIT == 0))
            && self.is_free(&range)
        {
            return Ok(range);
        }

        let memory = &self.machine.core.memory;
        let start = memory.find_free(size, top).ok_or(Errno::ENOMEM)?;
        Ok(start..start + size)
    }

    pub(super) fn sys_mmap(
        &mut self,
        hint: u64,
        size: u64,
        prot: u64,
        flags: u64,
        fd: u64,
        offset: u64,
    ) -> Answer {
        if !offset.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }

        // Linux looks up the descriptor before it refuses a size of 0.
        let open = match flags & MAP_ANONYMOUS {
            0 => Some(self.files.own.table.get(fd)?),
            _ => None,
        };
        if size == 0 {
            return Err(Errno::EINVAL);
        }

        if flags & (MAP_HUGETLB | MAP_GROWSDOWN) != 0 {
            return self.not_modelled("mmap: huge pages, growing stacks", Errno::ENOMEM);
        }

        // Only MAP_SHARED_VALIDATE refuses flags that it does not know (mmap(2)).
        let is_shared = match flags & 0xf {
            MAP_PRIVATE => false,
            MAP_SHARED => true,
            MAP_SHARED_VALIDATE if flags & !MAP_LEGACY == 0 => true,
            MAP_SHARED_VALIDATE if open.is_some() => return Err(Errno::EOPNOTSUPP),
            _ => return Err(Errno::EINVAL),
        };

        let range = self.place(hint, size, flags)?;
        let content = match &open {
            Some(open) => {
                let length = range.end - range.start;
                // The end of the mapping must be a position, too (mmap(2), EOVERFLOW).
                if offset > i64::MAX as u64 - length {
                    return Err(Errno::EOVERFLOW);
                }
                Kernel::check_may_map(open, prot, is_shared)?;
                self.content(open, offset, length, is_shared)?
            }
            None => None,
        };

        // What is shared, or has MAP_NORESERVE, is not accounted (`accountable_mapping`).
        let counts = !is_shared && flags & MAP_NORESERVE == 0;
        self.may_map(range.end - range.start, permissions(prot), counts)?;
        self.map(&range, permissions(prot), content)?;

        let is_file = self.process.layout.file_at(range.start).is_some();
        if is_shared && !is_file {
            self.share_memory(range.clone(), permissions(prot))?;
        }
        Ok(range.start)
    }

    /// Lets children share zeroed memory that was just mapped.
    fn share_memory(&mut self, range: Range<u64>, may: Permissions) -> Answer<()> {
        let memory = &mut self.machine.core.memory;
        let object = memory.create_object(address_space::Content::empty());
        memory.set_object_size(object, range.end - range.start);
        let mapped = memory.map_shared(range, may, object, 0);
        memory.release_object(object);
        Ok(mapped?)
    }

    /// Checks whether an open file may be mapped.
    fn check_may_map(open: &Shared, prot: u64, is_shared: bool) -> Answer<()> {
        let open = open.borrow();
        let writes = is_shared && prot & PROT_WRITE != 0;
        if writes && !open.can_write() || !open.can_read() {
            return Err(Errno::EACCES);
        }
        let seals = match &open.kind {
            Kind::Memory(inode) => inode.borrow().seals,
            _ => 0,
        };
        if writes && seals & (seal::WRITE | seal::FUTURE_WRITE) != 0 {
            return Err(Errno::EPERM);
        }
        Ok(())
    }

    pub(super) fn sys_munmap(&mut self, start: u64, size: u64) -> Answer {
        self.unmap(range(start, size)?)?;
        Ok(0)
    }

    pub(super) fn sys_mprotect(&mut self, start: u64, size: u64, prot: u64) -> Answer {
        /// `PROT_READ`, `WRITE`, `EXEC`, `SEM`.
        const PROT_KNOWN: u64 = 0xf;
        const GROWSDOWN: u64 = 0x0100_0000;
        const GROWSUP: u64 = 0x0200_0000;

        // The checks have the order of `do_mprotect_pkey` (`mm/mprotect.c`).
        let grows = prot & (GROWSDOWN | GROWSUP);
        let prot = prot & !grows;
        if grows == GROWSDOWN | GROWSUP || !start.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }
        if size == 0 {
            return Ok(0);
        }

        let mut range = range(start, size).map_err(|_| Errno::ENOMEM)?;
        if prot & !PROT_KNOWN != 0 {
            return Err(Errno::EINVAL);
        }

        match grows {
            GROWSDOWN => range.start = self.start_of_growing(&range)?,
            GROWSUP => {
                self.machine.core.memory.area(start).ok_or(Errno::ENOMEM)?;
                // Nothing grows upward on x86.
                return Err(Errno::EINVAL);
            }
            _ => {}
        }

        // Nothing is ever mapped below it.
        if range.start < MMAP_MIN_ADDR {
            return Err(Errno::ENOMEM);
        }

        let may = permissions(prot);
        let mut files = self.process.layout.files_in(&range);
        // A file that was opened for reading is never written through its mapping (`VM_MAYWRITE`).
        if prot & PROT_WRITE != 0 && files.any(|file| file.is_shared && !file.is_writable) {
            return Err(Errno::EACCES);
        }
        drop(files);

        let memory = &mut self.machine.core.memory;
        memory.protect(range.clone(), may)?;
        // Pages past the end of the file get these permissions when the file grows.
        for (behind, _) in self.process.layout.behind_in(&range) {
            memory.protect(behind.clone(), Permissions::NONE)?;
            self.process.layout.set_behind(behind, Some(may));
        }

        let file = self.process.layout.file_at(range.start);
        self.system.events.push(Event::Mapped {
            range,
            permissions: may,
            file: file.map(|file| (file.path, file.offset)),
            again: true,
        });
        Ok(0)
    }

    /// The start of the mapping that grows downward and reaches into a range
    /// (`PROT_GROWSDOWN`). Only the stack does, which has its full size already. Linux merges
    /// neighbours with the same permissions.
    ///
    /// # Errors
    /// `ENOMEM` if nothing is mapped there, `EINVAL` if it does not grow.
    fn start_of_growing(&self, range: &Range<u64>) -> Answer {
        let memory = &self.machine.core.memory;
        let mut areas = memory.areas();
        let found = areas.find(|(area, _)| area.end > range.start);
        let (mut first, area) = found.ok_or(Errno::ENOMEM)?;
        if first.start >= range.end {
            return Err(Errno::ENOMEM);
        }

        let stack = &self.process.layout.stack;
        if !stack.contains(&first.start) {
            return Err(Errno::EINVAL);
        }
        let may = area.permissions();
        while first.start > stack.start {
            match memory.area(first.start - 1) {
                Some((below, area)) if area.permissions() == may => first = below,
                _ => break,
            }
        }
        Ok(first.start)
    }

    /// Whole pages starting at `start`; a bad size gives `error`.
    fn whole(start: u64, size: u64, error: Errno) -> Answer<Range<u64>> {
        if !start.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }
        let rounded = size.wrapping_add(PAGE_SIZE - 1) & !(PAGE_SIZE - 1);
        let end = start.checked_add(rounded).ok_or(error)?;
        if rounded == 0 && size != 0 {
            Err(error)
        } else {
            Ok(start..end)
        }
    }

    /// The mapped parts of a range, and whether they are all of it.
    fn mapped(&self, range: &Range<u64>) -> (Vec<Range<u64>>, bool) {
        let areas = self.machine.core.memory.areas();
        let parts: Vec<Range<u64>> = areas
            .map(|(area, _)| area.start.max(range.start)..area.end.min(range.end))
            .filter(|part| part.start < part.end)
            .collect();
        let size: u64 = parts.iter().map(|part| part.end - part.start).sum();
        (parts, size == range.end - range.start)
    }

    pub(super) fn sys_madvise(&mut self, start: u64, size: u64, advice: u64) -> Answer {
        const DONTNEED: u32 = 4;
        const REMOVE: u32 = 9;
        const DONTNEED_LOCKED: u32 = 24;
        const COLLAPSE: u32 = 25;
        let advice = advice as u32;
        if !matches!(advice, 0..=4 | 8..=25 | 100 | 101) {
            return Err(Errno::EINVAL);
        }
        let range = Kernel::whole(start, size, Errno::EINVAL)?;
        if range.is_empty() {
            return Ok(0);
        }
        if matches!(advice, REMOVE | COLLAPSE | 100 | 101) {
            return self.not_modelled("madvise: removing, collapsing, poison", Errno::EINVAL);
        }
        let (parts, is_all) = self.mapped(&range);
        if matches!(advice, DONTNEED | DONTNEED_LOCKED) {
            for part in parts {
                self.machine.core.memory.discard(part)?;
            }
        }
        if is_all { Ok(0) } else { Err(Errno::ENOMEM) }
    }

    pub(super) fn sys_msync(&mut self, start: u64, size: u64, flags: u64) -> Answer {
        const ASYNC: u32 = 1;
        const INVALIDATE: u32 = 2;
        const SYNC: u32 = 4;
        let flags = flags as u32;
        let both = ASYNC | SYNC;
        if flags & !(both | INVALIDATE) != 0 || flags & both == both {
            return Err(Errno::EINVAL);
        }
        let rounded = size.wrapping_add(PAGE_SIZE - 1) & !(PAGE_SIZE - 1);
        let range = Kernel::whole(start, rounded, Errno::ENOMEM)?;
        let is_all = self.mapped(&range).1;
        if is_all { Ok(0) } else { Err(Errno::ENOMEM) }
    }

    /// `mlockall`: memory is never swapped out anyway.
    pub(super) fn sys_mlockall(&mut self, flags: u64) -> Answer {
        const CURRENT: u32 = 1;
        const ONFAULT: u32 = 4;
        let flags = flags as u32;
        if matches!(flags, 0 | ONFAULT | 8..) {
            return Err(Errno::EINVAL);
        }
        let areas = self.machine.core.memory.areas();
        let mapped: u64 = areas.map(|(range, _)| range.end - range.start).sum();
        self.may_lock(if flags & CURRENT != 0 { mapped } else { 0 })?;
        Ok(0)
    }

    pub(super) fn sys_mincore(&mut self, start: u64, size: u64, to: u64) -> Answer {
        if !start.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }
        let size = size
            .checked_next_multiple_of(PAGE_SIZE)
            .ok_or(Errno::ENOMEM)?;
        self.accessible(start, size).map_err(|_| Errno::ENOMEM)?;
        self.accessible(to, size / PAGE_SIZE)?;
        for page in 0..size / PAGE_SIZE {
            let memory = &self.machine.core.memory;
            let at = start + page * PAGE_SIZE;
            let (_, area) = memory.area(at).ok_or(Errno::ENOMEM)?;
            let is_there = area.is_file() || memory.has_frame(at);
            self.put(to + page, &[u8::from(is_there)])?;
        }
        Ok(0)
    }

    /// `mlock2`, `mlock` and `munlock`: memory is never swapped out anyway.
    pub(super) fn sys_mlock(&mut self, start: u64, size: u64, flags: u64, locks: bool) -> Answer {
        const ONFAULT: u32 = 1;
        if flags as u32 & !ONFAULT != 0 {
            return Err(Errno::EINVAL);
        }
        let from = start & !(PAGE_SIZE - 1);
        let range = Kernel::whole(from, size.saturating_add(start - from), Errno::EINVAL)?;
        if locks {
            self.may_lock(range.end - range.start)?;
        }
        let is_all = self.mapped(&range).1;
        if is_all { Ok(0) } else { Err(Errno::ENOMEM) }
    }

    /// Sets the end of the heap to `wanted` if possible; returns the resulting end.
    pub(super) fn sys_brk(&mut self, wanted: u64) -> Answer {
        let old = self.process.layout.brk;

        // `brk` has no errors: it returns the end that there is.
        if wanted < self.process.layout.heap || wanted > TASK_SIZE {
            return Ok(old);
        }

        let top = |brk: u64| brk.next_multiple_of(PAGE_SIZE);
        let (from, to) = (top(old), top(wanted));
        let done = match from.cmp(&to) {
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => self.unmap(to..from),
            std::cmp::Ordering::Less if !self.is_free(&(from..to)) => Err(Errno::ENOMEM),
            std::cmp::Ordering::Less
                if self
                    .may_map(to - from, Permissions::READ_WRITE, true)
                    .is_err() =>
            {
                Err(Errno::ENOMEM)
            }
            std::cmp::Ordering::Less => self.map(&(from..to), Permissions::READ_WRITE, None),
        };

        if done.is_ok() {
            self.process.layout.brk = wanted;
        }
        Ok(self.process.layout.brk)
    }
}
