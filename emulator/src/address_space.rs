//! The memory of a process: 47-bit addresses, 4 KiB pages, permissions.
//!
//! An area costs nothing until it is used: a file-backed area is read from the file's bytes, any
//! other is zero. Memory that the machine reads or writes gets a page (`pages`), which it finds
//! again through a table of recent translations (`fast`). Not here: the loader and the system calls
//! that ask for memory, and shared memory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use unwind_sim_unwind::image::Bytes;
use unwind_sim_unwind::memory::{Memory, MemoryError};

mod changes;
mod fast;
mod fault;
mod history;
mod pages;
mod snapshot;
#[cfg(test)]
mod tests;
mod world;

pub use changes::Change;
pub use fast::Refusal;
pub use fault::{Access, Fault, FaultKind, MapError, Permissions};
pub use history::{HISTORY_BYTES_MAX, RestoreError};
pub use snapshot::Snapshot;

use fast::Tlb;
use pages::Pages;

/// Page size, bytes.
pub const PAGE_SIZE: u64 = 4096;
/// The end of user space (Linux `TASK_SIZE_MAX`: the last page of the lower half is left out).
pub const TASK_SIZE: u64 = (1 << 47) - PAGE_SIZE;
/// The lowest address that can be mapped (Linux `vm.mmap_min_addr`).
pub const MMAP_MIN_ADDR: u64 = 0x1_0000;
/// Maximum number of areas (Linux `vm.max_map_count`).
pub const AREAS_MAX: usize = 65530;
/// Default for the maximum number of pages in use: 1 GiB.
pub const PAGES_MAX: usize = 1 << 18;

/// The content of an area before it is written: byte `address - origin` of the bytes, zero outside
/// of them.
#[derive(Clone, Debug)]
struct Backing {
    bytes: Bytes,
    /// The address of the first byte, modulo 2^64.
    origin: u64,
}

/// Consecutive pages of the same kind.
#[derive(Clone, Debug)]
pub struct Area {
    /// The first address past the area.
    end: u64,
    permissions: Permissions,
    backing: Option<Backing>,
}

impl Area {
    /// The area's permissions.
    pub fn permissions(&self) -> Permissions {
        self.permissions
    }

    /// Whether the area is backed by a file.
    pub fn is_file(&self) -> bool {
        self.backing.is_some()
    }
}

/// The memory of one process.
#[derive(Clone, Debug)]
pub struct AddressSpace {
    /// By first address. Shared with snapshots.
    areas: Arc<BTreeMap<u64, Area>>,
    /// The lowest address that can be mapped.
    lowest: u64,
    pages: Pages,
    tlb: Tlb,
    /// Why the machine's last access was refused.
    refusal: Option<Refusal>,
    /// Ranges with decoded instructions that were written, mapped or unmapped.
    code_changes: Vec<Range<u64>>,
    /// Stores to decoded instructions are not refused.
    code_writable: bool,
    /// Changes since the last [`AddressSpace::take_changes`], if they are noted.
    changes: Option<Vec<Change>>,
}

impl Default for AddressSpace {
    fn default() -> Self {
        AddressSpace::new(PAGES_MAX)
    }
}

impl AddressSpace {
    /// An empty address space, in which at most `pages_max` pages may be in use.
    pub fn new(pages_max: usize) -> AddressSpace {
        AddressSpace {
            areas: Arc::default(),
            lowest: MMAP_MIN_ADDR,
            pages: Pages::new(pages_max),
            tlb: Tlb::default(),
            refusal: None,
            code_changes: Vec::new(),
            code_writable: false,
            changes: None,
        }
    }

    /// Like [`AddressSpace::default`], for code without a kernel: address 0 can be mapped too.
    pub fn bare() -> AddressSpace {
        AddressSpace {
            lowest: 0,
            ..AddressSpace::default()
        }
    }

    /// All areas with their address ranges, ascending.
    pub fn areas(&self) -> impl Iterator<Item = (Range<u64>, &Area)> {
        self.areas
            .iter()
            .map(|(&start, area)| (start..area.end, area))
    }

    /// The area that holds `address`.
    pub fn area(&self, address: u64) -> Option<(Range<u64>, &Area)> {
        let (&start, area) = self.areas.range(..=address).next_back()?;
        (address < area.end).then_some((start..area.end, area))
    }

    /// Maps zeros at `range`, replacing what was there (`MAP_FIXED | MAP_ANONYMOUS`).
    ///
    /// # Errors
    /// If `range` is not whole pages of user space, or there are too many areas.
    pub fn map(&mut self, range: Range<u64>, permissions: Permissions) -> Result<(), MapError> {
        self.map_backed(range, permissions, None)
    }

    /// Maps a file privately at `range`, starting at the file's byte `offset`, replacing what was
    /// there. Bytes past the end of the file are zero.
    ///
    /// # Errors
    /// Like [`AddressSpace::map`].
    pub fn map_file(
        &mut self,
        range: Range<u64>,
        permissions: Permissions,
        file: Bytes,
        offset: u64,
    ) -> Result<(), MapError> {
        let backing = Backing {
            bytes: file,
            origin: range.start.wrapping_sub(offset),
        };
        self.map_backed(range, permissions, Some(backing))
    }

    fn map_backed(
        &mut self,
        range: Range<u64>,
        permissions: Permissions,
        backing: Option<Backing>,
    ) -> Result<(), MapError> {
        self.check(&range)?;
        // The new area, and the two ends of an area that it splits.
        if self.areas.len() + 2 > AREAS_MAX {
            return Err(MapError::Areas);
        }
        self.remove(&range);
        let area = Area {
            end: range.end,
            permissions,
            backing,
        };
        Arc::make_mut(&mut self.areas).insert(range.start, area);
        Ok(())
    }

    /// Unmaps `range`, which need not be mapped.
    ///
    /// # Errors
    /// Like [`AddressSpace::map`].
    pub fn unmap(&mut self, range: Range<u64>) -> Result<(), MapError> {
        self.check(&range)?;
        if self.areas.len() + 1 > AREAS_MAX {
            return Err(MapError::Areas);
        }
        self.remove(&range);
        Ok(())
    }

    /// Changes permissions. Like Linux, it changes the pages before a hole.
    ///
    /// # Errors
    /// Like [`AddressSpace::map`], and if a part of the range is not mapped.
    pub fn protect(&mut self, range: Range<u64>, permissions: Permissions) -> Result<(), MapError> {
        self.check(&range)?;
        if self.areas.len() + 2 > AREAS_MAX {
            return Err(MapError::Areas);
        }
        self.split(range.start);
        self.split(range.end);
        self.tlb.flush();
        self.note(|| Change::Mapped(range.clone()));
        self.pages.code_changed(&range, &mut self.code_changes);
        let mut next = range.start;
        for (&start, area) in Arc::make_mut(&mut self.areas).range_mut(range.clone()) {
            if start != next {
                break;
            }
            area.permissions = permissions;
            next = area.end;
        }
        if next == range.end {
            Ok(())
        } else {
            Err(MapError::Hole { address: next })
        }
    }

    /// Drops what was written to a range, so that it holds what it held when it was mapped.
    ///
    /// # Errors
    /// If `range` is not whole pages of user space.
    pub fn discard(&mut self, range: Range<u64>) -> Result<(), MapError> {
        self.check(&range)?;
        self.note(|| Change::Mapped(range.clone()));
        self.pages.remove(&range, &mut self.code_changes);
        self.tlb.flush();
        Ok(())
    }

    /// Replaces the bytes of the file behind a range; the first byte is at the start of the range.
    /// Pages that were written to keep their content.
    ///
    /// # Errors
    /// Like [`AddressSpace::map`].
    pub fn change_file(&mut self, range: Range<u64>, bytes: Bytes) -> Result<(), MapError> {
        self.check(&range)?;
        if self.areas.len() + 2 > AREAS_MAX {
            return Err(MapError::Areas);
        }
        self.split(range.start);
        self.split(range.end);
        let mut held = [0; PAGE_SIZE as usize];
        for number in self.pages.inside(&range) {
            let at = number * PAGE_SIZE;
            let area = self.area(at).map(|(_, area)| area);
            let Some(area) = area.filter(|area| area.is_file()) else {
                continue;
            };
            area.fill(at, &mut held);
            if self.pages.get(number) == Some(&held[..]) {
                let page = at..at + PAGE_SIZE;
                self.pages.remove(&page, &mut self.code_changes);
            }
        }
        let backing = Backing {
            bytes,
            origin: range.start,
        };
        for (_, area) in Arc::make_mut(&mut self.areas).range_mut(range.clone()) {
            if area.is_file() {
                area.backing = Some(backing.clone());
            }
        }
        self.note(|| Change::Mapped(range.clone()));
        self.tlb.flush();
        Ok(())
    }

    /// The number of pages in use.
    pub fn pages_in_use(&self) -> usize {
        self.pages.count()
    }

    /// The start of the highest free range of `size` bytes below `top`, which is where Linux's
    /// top-down search finds one. `None` if there is none, or if `size` is not whole pages.
    pub fn find_free(&self, size: u64, top: u64) -> Option<u64> {
        if size == 0 || !size.is_multiple_of(PAGE_SIZE) {
            return None;
        }
        let mut end = top.min(TASK_SIZE) & !(PAGE_SIZE - 1);
        for (&start, area) in self.areas.range(..end).rev() {
            if end.checked_sub(area.end).is_some_and(|gap| gap >= size) {
                break;
            }
            end = end.min(start);
        }
        let start = end.checked_sub(size)?;
        (start >= MMAP_MIN_ADDR).then_some(start)
    }

    /// Removes areas and pages of a checked range.
    fn remove(&mut self, range: &Range<u64>) {
        self.note(|| Change::Mapped(range.clone()));
        self.split(range.start);
        self.split(range.end);
        let inside: Vec<u64> = self.areas.range(range.clone()).map(|(&s, _)| s).collect();
        for start in inside {
            Arc::make_mut(&mut self.areas).remove(&start);
        }
        self.pages.remove(range, &mut self.code_changes);
        self.tlb.flush();
    }

    /// Splits the area that `address` lies in.
    fn split(&mut self, address: u64) {
        let Some((&start, area)) = self.areas.range(..address).next_back() else {
            return;
        };
        if area.end > address {
            let upper = area.clone();
            let areas = Arc::make_mut(&mut self.areas);
            if let Some(lower) = areas.get_mut(&start) {
                lower.end = address;
            }
            areas.insert(address, upper);
        }
    }

    /// Fills `buf` from `address`.
    ///
    /// # Errors
    /// The fault at the first byte that cannot be read; `buf` then holds the bytes before it.
    pub fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), Fault> {
        self.load(address, buf, Some(Access::Read))
    }

    /// Fills `buf` with instruction bytes.
    ///
    /// # Errors
    /// Like [`AddressSpace::read`], for execution.
    pub fn fetch(&self, address: u64, buf: &mut [u8]) -> Result<(), Fault> {
        self.load(address, buf, Some(Access::Execute))
    }

    /// Fills `buf` regardless of permissions: for debuggers and the loader.
    ///
    /// # Errors
    /// The fault at the first byte that is not mapped.
    pub fn peek(&self, address: u64, buf: &mut [u8]) -> Result<(), Fault> {
        self.load(address, buf, None)
    }

    /// Stores all of `bytes` at `address`, or nothing.
    ///
    /// # Errors
    /// The fault at the first byte that cannot be written.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.store(address, bytes, Some(Access::Write))
    }

    /// Stores `bytes` regardless of permissions: for debuggers and the loader.
    ///
    /// # Errors
    /// The fault at the first byte that is not mapped.
    pub fn poke(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.store(address, bytes, None)
    }

    fn load(&self, address: u64, buf: &mut [u8], access: Option<Access>) -> Result<(), Fault> {
        let mut done = 0;
        while done < buf.len() {
            let at = address.wrapping_add(done as u64);
            let area = self.usable(at, access, Access::Read)?;
            let in_page = (at % PAGE_SIZE) as usize;
            let count = (buf.len() - done).min(PAGE_SIZE as usize - in_page);
            let to = &mut buf[done..done + count];
            match self.pages.get(at / PAGE_SIZE) {
                Some(page) => to.copy_from_slice(&page[in_page..in_page + count]),
                None => area.fill(at, to),
            }
            done += count;
        }
        Ok(())
    }

    fn store(&mut self, address: u64, bytes: &[u8], access: Option<Access>) -> Result<(), Fault> {
        let (mut checked, mut new) = (0, 0);
        while checked < bytes.len() as u64 {
            let at = address.wrapping_add(checked);
            self.usable(at, access, Access::Write)?;
            new += usize::from(!self.pages.contains(at / PAGE_SIZE));
            if !self.pages.has_room(new) {
                return Err(Fault::out_of_pages(at));
            }
            checked += PAGE_SIZE - at % PAGE_SIZE;
        }
        self.note(|| Change::Stored(address..address.wrapping_add(bytes.len() as u64)));
        let mut done = 0;
        while done < bytes.len() {
            let at = address.wrapping_add(done as u64);
            let in_page = (at % PAGE_SIZE) as usize;
            let count = (bytes.len() - done).min(PAGE_SIZE as usize - in_page);
            if self.pages.is_code(at / PAGE_SIZE) {
                self.code_changes.push(at..at + count as u64);
            }
            if let Some(base) = self.page(at) {
                self.pages.save(at / PAGE_SIZE);
                let to = &mut self.pages.bytes_mut()[base + in_page..][..count];
                to.copy_from_slice(&bytes[done..done + count]);
            }
            done += count;
        }
        Ok(())
    }

    /// The offset, in the pages' bytes, of the page of a mapped address; the page is created if
    /// necessary. `None` if there is no room.
    fn page(&mut self, address: u64) -> Option<usize> {
        let number = address / PAGE_SIZE;
        if let Some(base) = self.pages.base(number) {
            return Some(base);
        }
        let base = self.pages.insert(number)?;
        if let Some((_, area)) = self.areas.range(..=address).next_back() {
            let page = &mut self.pages.bytes_mut()[base..base + PAGE_SIZE as usize];
            area.fill(address - address % PAGE_SIZE, page);
        }
        Some(base)
    }

    fn check(&self, range: &Range<u64>) -> Result<(), MapError> {
        let Range { start, end } = *range;
        let whole = start.is_multiple_of(PAGE_SIZE) && end.is_multiple_of(PAGE_SIZE);
        if whole && start < end && start >= self.lowest && end <= TASK_SIZE {
            return Ok(());
        }
        Err(MapError::Range { start, end })
    }

    /// The area of an address, if it allows the access (`None`: any area).
    fn usable(&self, address: u64, access: Option<Access>, shown: Access) -> Result<&Area, Fault> {
        let fault = |kind| Fault {
            address,
            access: access.unwrap_or(shown),
            kind,
        };
        // Bits 63 to 47 must be equal.
        if !matches!(address.cast_signed() >> 47, 0 | -1) {
            return Err(fault(FaultKind::NonCanonical));
        }
        let (_, area) = self.area(address).ok_or(fault(FaultKind::Unmapped))?;
        if access.is_some_and(|access| !area.permissions.allow(access)) {
            return Err(fault(FaultKind::Protected));
        }
        Ok(area)
    }
}

impl Area {
    /// Fills `to` with what the area holds at `address` before anything is written.
    fn fill(&self, address: u64, to: &mut [u8]) {
        to.fill(0);
        let Some(backing) = &self.backing else { return };
        let start = usize::try_from(address.wrapping_sub(backing.origin)).ok();
        if let Some(from) = start.and_then(|start| backing.bytes.get(start..)) {
            let count = from.len().min(to.len());
            to[..count].copy_from_slice(&from[..count]);
        }
    }
}

/// The memory that an unwinder inside the machine could read.
impl Memory for AddressSpace {
    #[inline]
    fn read_u64(&self, address: u64) -> Result<u64, MemoryError> {
        if let Some(word) = self.recent_u64(address) {
            return Ok(word);
        }
        let mut bytes = [0; 8];
        Memory::read(self, address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), MemoryError> {
        AddressSpace::read(self, address, buf).map_err(|_| MemoryError::Unmapped { address })
    }

    fn stack_bounds(&self, sp: u64) -> Option<Range<u64>> {
        self.area(sp).map(|(range, _)| range)
    }
}
