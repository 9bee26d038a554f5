//! Memory: `mmap` and the like. Source: Linux 6.12 `mm/mmap.c`, `mm/mremap.c`, `mm/madvise.c`.

use crate::address_space::{MMAP_MIN_ADDR, MapError, PAGE_SIZE, Permissions, TASK_SIZE};
use crate::linux::Process;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{Kind, Shared};
use crate::linux::observer::Event;
use crate::linux::outcome::Notice;
use crate::load::MMAP_BASE;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use unwind_sim_unwind::image::Bytes;

const PROT_WRITE: u64 = 2;
const MAP_SHARED: u64 = 1;
const MAP_SHARED_VALIDATE: u64 = 3;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
const MREMAP_MAYMOVE: u64 = 1;
const MREMAP_FIXED: u64 = 2;
const MREMAP_DONTUNMAP: u64 = 4;
const MADV_DONTNEED: u64 = 4;

/// A file that is mapped: its path, the offset, and its bytes from there on.
struct Content {
    path: Rc<[u8]>,
    offset: u64,
    bytes: Bytes,
}

impl From<MapError> for Errno {
    fn from(error: MapError) -> Errno {
        match error {
            MapError::Range { .. } => Errno::EINVAL,
            MapError::Hole { .. } | MapError::Areas => Errno::ENOMEM,
        }
    }
}

fn permissions(prot: u64) -> Permissions {
    Permissions::new(prot & 1 != 0, prot & PROT_WRITE != 0, prot & 4 != 0)
}

/// A size in whole pages.
fn pages(size: u64) -> Answer<u64> {
    let pages = size.checked_next_multiple_of(PAGE_SIZE);
    pages.filter(|&size| size <= TASK_SIZE).ok_or(Errno::ENOMEM)
}

/// A range of whole pages in user space.
fn range(start: u64, size: u64) -> Answer<Range<u64>> {
    let end = pages(size).map_err(|_| Errno::EINVAL)?.checked_add(start);
    let end = end.filter(|&end| end <= TASK_SIZE).ok_or(Errno::EINVAL)?;
    match start.is_multiple_of(PAGE_SIZE) && start < end {
        true => Ok(start..end),
        false => Err(Errno::EINVAL),
    }
}

impl Process {
    fn is_free(&self, range: &Range<u64>) -> bool {
        let areas = &self.machine.state.memory;
        let before_end = range.end.saturating_sub(1);
        areas.area(before_end).is_none()
            && areas.find_free(range.end - range.start, range.end) == Some(range.start)
    }

    /// Maps what is wanted, and says so.
    fn map(
        &mut self,
        range: &Range<u64>,
        may: Permissions,
        content: Option<Content>,
    ) -> Answer<()> {
        let memory = &mut self.machine.state.memory;
        let mut named = None;
        let mut behind = None;
        match content {
            None => memory.map(range.clone(), may)?,
            Some(Content {
                path,
                offset,
                bytes,
            }) => {
                let held = (bytes.len() as u64).next_multiple_of(PAGE_SIZE);
                memory.map_file(range.clone(), may, bytes, 0)?;
                let end = range.start.saturating_add(held);
                if end < range.end {
                    // A page that the file does not have.
                    memory.map(end..range.end, Permissions::NONE)?;
                    behind = Some(end..range.end);
                }
                named = Some((path, offset));
            }
        }
        self.layout.name(range.clone(), named.clone());
        if let Some(behind) = behind {
            self.layout.add_behind(behind);
        }
        self.events.push(Event::Mapped {
            range: range.clone(),
            permissions: may,
            file: named,
            again: false,
        });
        Ok(())
    }

    fn unmap(&mut self, range: Range<u64>) -> Answer<()> {
        if range.end <= MMAP_MIN_ADDR {
            return Ok(());
        }
        let range = range.start.max(MMAP_MIN_ADDR)..range.end;
        self.machine.state.memory.unmap(range.clone())?;
        self.layout.name(range.clone(), None);
        self.events.push(Event::Unmapped(range));
        Ok(())
    }

    /// Where something new goes.
    fn place(&self, hint: u64, size: u64, flags: u64) -> Answer<Range<u64>> {
        if flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0 {
            let range = range(hint, size)?;
            if range.start < MMAP_MIN_ADDR {
                return Err(Errno::EPERM);
            }
            if flags & MAP_FIXED_NOREPLACE != 0 && !self.is_free(&range) {
                return Err(Errno::EEXIST);
            }
            return Ok(range);
        }
        let hint = hint & !(PAGE_SIZE - 1);
        if hint >= MMAP_MIN_ADDR
            && let Ok(range) = range(hint, size)
            && self.is_free(&range)
        {
            return Ok(range);
        }
        let size = pages(size)?;
        let memory = &self.machine.state.memory;
        let start = memory.find_free(size, MMAP_BASE).ok_or(Errno::ENOMEM)?;
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
        if size == 0 || !offset.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }
        let is_shared = matches!(flags & 0xf, MAP_SHARED | MAP_SHARED_VALIDATE);
        if !is_shared && flags & 0xf != 2 {
            return Err(Errno::EINVAL);
        }
        let range = self.place(hint, size, flags)?;
        let content = match flags & MAP_ANONYMOUS {
            0 => {
                let open = self.files.table.get(fd)?;
                if is_shared && prot & PROT_WRITE != 0 {
                    self.notice(Notice::Part("writing to a file through shared memory"));
                    return Err(Errno::ENODEV);
                }
                content(&open, offset, range.end - range.start)?
            }
            _ => None,
        };
        self.map(&range, permissions(prot), content)?;
        Ok(range.start)
    }

    pub(super) fn sys_munmap(&mut self, start: u64, size: u64) -> Answer {
        self.unmap(range(start, size)?)?;
        Ok(0)
    }

    pub(super) fn sys_mprotect(&mut self, start: u64, size: u64, prot: u64) -> Answer {
        if !start.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }
        if size == 0 {
            return Ok(0);
        }
        let range = range(start, size).map_err(|_| Errno::ENOMEM)?;
        if range.start < MMAP_MIN_ADDR {
            return Err(Errno::ENOMEM);
        }
        let may = permissions(prot);
        let memory = &mut self.machine.state.memory;
        memory.protect(range.clone(), may)?;
        for behind in self.layout.behind_in(&range) {
            memory.protect(behind, Permissions::NONE)?;
        }
        let file = self.layout.file_at(range.start);
        self.events.push(Event::Mapped {
            range,
            permissions: may,
            file,
            again: true,
        });
        Ok(0)
    }

    pub(super) fn sys_madvise(&mut self, start: u64, size: u64, advice: u64) -> Answer {
        if !start.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }
        if size != 0 && advice == MADV_DONTNEED {
            self.machine.state.memory.discard(range(start, size)?)?;
        }
        Ok(0)
    }

    /// The heap's end; where it was if it cannot be there.
    pub(super) fn sys_brk(&mut self, wanted: u64) -> Answer {
        let old = self.layout.brk;
        if wanted < self.layout.heap || wanted > TASK_SIZE {
            return Ok(old);
        }
        let top = |brk: u64| brk.next_multiple_of(PAGE_SIZE);
        let (from, to) = (top(old), top(wanted));
        let done = match from.cmp(&to) {
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => self.unmap(to..from),
            std::cmp::Ordering::Less if !self.is_free(&(from..to)) => Err(Errno::ENOMEM),
            std::cmp::Ordering::Less => self.map(&(from..to), Permissions::READ_WRITE, None),
        };
        if done.is_ok() {
            self.layout.brk = wanted;
        }
        Ok(self.layout.brk)
    }

    pub(super) fn sys_mremap(
        &mut self,
        start: u64,
        old_size: u64,
        new_size: u64,
        flags: u64,
        to: u64,
    ) -> Answer {
        if flags & MREMAP_DONTUNMAP != 0 || old_size == 0 {
            self.notice(Notice::Part("mremap that keeps the old mapping"));
            return Err(Errno::EINVAL);
        }
        if new_size == 0 || flags & MREMAP_FIXED != 0 && flags & MREMAP_MAYMOVE == 0 {
            return Err(Errno::EINVAL);
        }
        let old = range(start, old_size)?;
        let size = pages(new_size)?;
        let old_pages = old.end - old.start;
        let area = self.machine.state.memory.area(old.start);
        let (area, may) = area
            .map(|(r, a)| (r, a.permissions()))
            .ok_or(Errno::EFAULT)?;
        if flags & MREMAP_FIXED == 0 && size <= old_pages {
            if size < old_pages {
                self.unmap(old.start + size..old.end)?;
            }
            return Ok(start);
        }
        let is_one = area.end >= old.end;
        let named = self.layout.file_at(old.start);
        let grown = old.end..old.start.saturating_add(size);
        if flags & MREMAP_FIXED == 0 && is_one && named.is_none() && self.is_free(&grown) {
            self.map(&grown, may, None)?;
            return Ok(start);
        }
        if flags & MREMAP_MAYMOVE == 0 {
            return Err(Errno::ENOMEM);
        }
        let hint = if flags & MREMAP_FIXED != 0 { to } else { 0 };
        let fixed = if flags & MREMAP_FIXED != 0 {
            MAP_FIXED
        } else {
            0
        };
        let new = self.place(hint, size, fixed)?;
        if new.start < old.end && old.start < new.end {
            return Err(Errno::EINVAL);
        }
        self.map(&new, may, None)?;
        self.copy_pages(&old, &new)?;
        self.unmap(old)?;
        Ok(new.start)
    }

    /// Copies pages that are not all zero.
    fn copy_pages(&mut self, from: &Range<u64>, to: &Range<u64>) -> Answer<()> {
        let size = (from.end - from.start).min(to.end - to.start);
        let mut page = [0; PAGE_SIZE as usize];
        for offset in (0..size).step_by(PAGE_SIZE as usize) {
            let memory = &mut self.machine.state.memory;
            memory.peek(from.start + offset, &mut page)?;
            if page != [0; PAGE_SIZE as usize] {
                memory.poke(to.start + offset, &page)?;
            }
        }
        Ok(())
    }
}

/// What an open file holds from `offset` on, at most `size` bytes. `None` for zeros.
fn content(open: &Shared, offset: u64, size: u64) -> Answer<Option<Content>> {
    let open = open.borrow();
    if !open.can_read() {
        return Err(Errno::EACCES);
    }
    let bytes = match &open.kind {
        Kind::Host(file) => {
            let rest = file.metadata()?.len().saturating_sub(offset).min(size);
            let mut bytes = vec![0; usize::try_from(rest).map_err(|_| Errno::ENOMEM)?];
            file.read_exact_at(&mut bytes, offset)?;
            bytes
        }
        Kind::Memory(inode) => {
            let inode = inode.borrow();
            let data = usize::try_from(offset)
                .ok()
                .and_then(|at| inode.data().get(at..));
            let data = data.unwrap_or_default();
            data[..data.len().min(size as usize)].to_vec()
        }
        Kind::Device(crate::linux::files::Device::Zero) => return Ok(None),
        _ => return Err(Errno::ENODEV),
    };
    Ok(Some(Content {
        path: Rc::from(&open.path[..]),
        offset,
        bytes: Bytes::from_vec(bytes),
    }))
}
