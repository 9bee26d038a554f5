//! The machine's own accesses: loads and stores of a few bytes, through a table of recent
//! translations.

use super::AddressSpace;
use super::fault::{Access, Fault, FaultKind};
use super::frames::Frames;
use super::limits::{PAGE_SIZE, TASK_SIZE};
use super::paging::Closed;
use super::watch::UNKNOWN;
use std::ops::Range;

/// Why an access by the machine was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The access faults.
    Fault(Fault),
    /// The store hits decoded instructions, which have to be forgotten first.
    Code(Range<u64>),
    /// It is a device's, in system mode, which has to know the time first.
    Device,
    /// The store hits what is [guarded](AddressSpace::set_guard).
    Guarded,
}

/// Addresses to which the machine may not store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guard {
    /// This address and all above it.
    lowest: u64,
    /// And these.
    start: u64,
    end: u64,
}

impl Guard {
    /// No address.
    pub const NONE: Guard = Guard::new(u64::MAX, 0..0);

    /// `lowest` and all addresses above it, and `other`.
    #[inline]
    pub const fn new(lowest: u64, other: Range<u64>) -> Guard {
        let Range { start, end } = other;
        Guard { lowest, start, end }
    }

    /// Whether one of the `size` bytes at `address` is guarded.
    #[inline(always)]
    pub const fn covers(&self, address: u64, size: u64) -> bool {
        let end = address.wrapping_add(size);
        end > self.lowest || (address < self.end && end > self.start)
    }

    /// Guards `address` and all above it, too.
    #[inline]
    pub fn lower(&mut self, address: u64) {
        self.lowest = self.lowest.min(address);
    }
}

/// Number of translations; a power of two.
const ENTRIES: usize = 1024;
const PAGE: usize = PAGE_SIZE as usize;

/// A page that may be accessed without a check, and the offset of its bytes.
#[derive(Clone, Copy, Debug)]
struct TlbEntry {
    start: u64,
    base: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Tlb {
    reads: Box<[TlbEntry; ENTRIES]>,
    writes: Box<[TlbEntry; ENTRIES]>,
    /// The entries of `writes` that are in use.
    written: Vec<u16>,
    /// Those of both that may be used only as long as AC is set.
    lent: Vec<u16>,
}

const fn index(address: u64) -> usize {
    (address / PAGE_SIZE) as usize % ENTRIES
}

/// The start of an entry that matches no address.
const fn empty(index: usize) -> u64 {
    (index as u64 ^ 1) * PAGE_SIZE
}

/// Entries that match no address: each holds a page that has another index.
static EMPTY: [TlbEntry; ENTRIES] = {
    let mut entries = [TlbEntry { start: 0, base: 0 }; ENTRIES];
    let mut i = 0;
    while i < ENTRIES {
        entries[i].start = empty(i);
        i += 1;
    }
    entries
};

impl Default for Tlb {
    fn default() -> Self {
        Tlb {
            reads: Box::new(EMPTY),
            writes: Box::new(EMPTY),
            written: Vec::new(),
            lent: Vec::new(),
        }
    }
}

impl Tlb {
    pub(super) fn flush(&mut self) {
        self.reads.copy_from_slice(&EMPTY);
        self.flush_writes();
        self.lent.clear();
    }

    pub(super) fn flush_writes(&mut self) {
        for index in self.written.drain(..) {
            self.writes[usize::from(index)] = EMPTY[usize::from(index)];
        }
    }

    /// Forgets the page of an address, which has got another frame.
    pub(super) fn forget_read(&mut self, address: u64) {
        let index = index(address);
        if hit(&self.reads, address, 1).is_some() {
            self.reads[index] = EMPTY[index];
        }
    }

    /// Forgets the translations of addresses in the same 2 MiB.
    pub(super) fn forget_around(&mut self, address: u64) {
        const LARGE: u64 = 1 << 21;
        let first = address & !(LARGE - 1);
        for page in 0..LARGE / PAGE_SIZE {
            let at = first + page * PAGE_SIZE;
            self.forget_read(at);
            if hit(&self.writes, at, 1).is_some() {
                self.writes[index(at)] = EMPTY[index(at)];
            }
        }
    }

    /// Forgets the pages that may be used only as long as AC is set.
    pub(super) fn forget_lent(&mut self) {
        for index in self.lent.drain(..).map(usize::from) {
            self.reads[index] = EMPTY[index];
            self.writes[index] = EMPTY[index];
        }
    }

    /// Adds the page of an address, which is at offset `at` of memory.
    pub(super) fn add_read_page(&mut self, address: u64, at: usize, is_lent: bool) {
        let index = index(address);
        self.reads[index] = entry_of(address, at);
        self.lend(index, is_lent);
    }

    /// Like [`Tlb::add_read_page`], for stores.
    pub(super) fn add_write_page(&mut self, address: u64, at: usize, is_lent: bool) {
        self.add_write(entry_of(address, at));
        self.lend(index(address), is_lent);
    }

    fn lend(&mut self, index: usize, is_lent: bool) {
        if is_lent {
            self.lent.push(index as u16);
        }
    }

    /// Adds a page whose stores need no check.
    fn add_write(&mut self, entry: TlbEntry) {
        let index = index(entry.start);
        if self.writes[index].start == empty(index) {
            self.written.push(index as u16);
        }
        self.writes[index] = entry;
    }
}

/// The entry of the page of an address, which is at offset `at` of the pages' bytes.
fn entry_of(address: u64, at: usize) -> TlbEntry {
    let inside = address % PAGE_SIZE;
    TlbEntry {
        start: address - inside,
        base: at - inside as usize,
    }
}

/// The offset of `size` bytes at `address` in the pages' bytes, if the entry covers all of them.
#[inline(always)]
fn hit(entries: &[TlbEntry; ENTRIES], address: u64, size: usize) -> Option<usize> {
    let entry = &entries[index(address)];
    let offset = address.wrapping_sub(entry.start);
    (offset <= (PAGE - size) as u64).then(|| entry.base + offset as usize)
}

impl AddressSpace {
    /// Loads `N` bytes, at most a page. `None` if they cannot be read: see
    /// [`AddressSpace::take_refusal`].
    #[inline(always)]
    pub fn load_bytes<const N: usize>(&mut self, address: u64) -> Option<[u8; N]> {
        if let Some(at) = hit(&self.tlb.reads, address, N)
            && let Some(bytes) = self.frames.bytes().get(at..at + N)
        {
            return bytes.try_into().ok();
        }
        self.load_slow(address)
    }

    /// Like [`AddressSpace::store_bytes`], but only to a page that was written recently.
    #[inline(always)]
    pub(crate) fn store_recent<const N: usize>(
        &mut self,
        address: u64,
        bytes: [u8; N],
    ) -> Option<()> {
        if self.guard.covers(address, N as u64) {
            return None;
        }
        let at = hit(&self.tlb.writes, address, N)?;
        let to = self.frames.bytes_mut().get_mut(at..at + N)?;
        to.copy_from_slice(&bytes);
        Some(())
    }

    /// The word at an address in a page that was read recently.
    #[inline(always)]
    pub(super) fn recent_u64(&self, address: u64) -> Option<u64> {
        let at = hit(&self.tlb.reads, address, 8)?;
        let bytes = self.frames.bytes().get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    /// Stores `N` bytes, at most a page, or nothing. `None` if they cannot be written.
    #[inline(always)]
    pub fn store_bytes<const N: usize>(&mut self, address: u64, bytes: [u8; N]) -> Option<()> {
        if self.guard.covers(address, N as u64) {
            return self.refuse(Refusal::Guarded);
        }
        if let Some(at) = hit(&self.tlb.writes, address, N)
            && let Some(to) = self.frames.bytes_mut().get_mut(at..at + N)
        {
            to.copy_from_slice(&bytes);
            return Some(());
        }
        self.store_slow(address, &bytes)
    }

    /// Checks that `size` bytes can be written: for instructions that read, compute and write.
    #[inline(always)]
    pub fn check_store(&mut self, address: u64, size: usize) -> Option<()> {
        if self.guard.covers(address, size as u64) {
            return self.refuse(Refusal::Guarded);
        }
        if hit(&self.tlb.writes, address, size).is_some() {
            return Some(());
        }
        self.check_store_slow(address, size as u64)
    }

    /// The bytes from `address` to the end of its page, for reading.
    pub fn readable(&mut self, address: u64) -> Option<&[u8]> {
        self.load_bytes::<1>(address)?;
        let base = hit(&self.tlb.reads, address, 1)?;
        self.frames.bytes().get(base..base + rest_of_page(address))
    }

    /// The bytes from `address` to the end of its page, for writing. `None` without a refusal means
    /// that only [`AddressSpace::store_bytes`] may write here: instructions in the page were
    /// decoded, changes are noted, or a part is guarded.
    pub fn writable(&mut self, address: u64) -> Option<&mut [u8]> {
        self.check_store(address, 1)?;
        if self.guard.covers(address, rest_of_page(address) as u64) {
            return None;
        }
        let base = hit(&self.tlb.writes, address, 1)?;
        let end = base + rest_of_page(address);
        self.frames.bytes_mut().get_mut(base..end)
    }

    /// Copies upward, at most `size` bytes and not past the end of either page. Returns the number
    /// of bytes; `None` as in [`AddressSpace::writable`].
    pub fn copy_in_pages(&mut self, to: u64, from: u64, size: u64) -> Option<u64> {
        self.load_bytes::<1>(from)?;
        self.check_store(to, 1)?;
        let target = hit(&self.tlb.writes, to, 1)?;
        let source = hit(&self.tlb.reads, from, 1)?;
        let room = rest_of_page(from).min(rest_of_page(to)) as u64;
        let size = size.min(room);
        if self.guard.covers(to, size) {
            return None;
        }
        let bytes = self.frames.bytes_mut();
        if from < to && to - from < size {
            // The ranges overlap: bytes that were just written are read.
            (0..size as usize).for_each(|i| bytes[target + i] = bytes[source + i]);
        } else {
            bytes.copy_within(source..source + size as usize, target);
        }
        Some(size)
    }

    /// Takes the reason why the last access returned `None`.
    pub fn take_refusal(&mut self) -> Option<Refusal> {
        self.refusal.take()
    }

    /// From now on, the machine's stores to these addresses are refused, and change nothing. What
    /// only says whether bytes can be written refuses them, too.
    #[inline(always)]
    pub fn set_guard(&mut self, guard: Guard) {
        self.guard = guard;
    }

    /// Takes the refusal of a store to what is guarded. Returns whether there was one.
    pub(crate) fn take_guarded(&mut self) -> bool {
        self.refusal
            .take_if(|refusal| *refusal == Refusal::Guarded)
            .is_some()
    }

    /// Marks a range as decoded instructions: changes to them are reported by
    /// [`AddressSpace::take_code_changes`].
    pub fn watch_code(&mut self, range: Range<u64>) {
        let mut flush = false;

        let end = range.end.min(TASK_SIZE).div_ceil(PAGE_SIZE);
        for number in range.start / PAGE_SIZE..end {
            if self.own.watch.contains(number) {
                continue;
            }

            let at = number * PAGE_SIZE;
            let is_object = self
                .area(at)
                .is_some_and(|(_, area)| area.object().is_some());
            // Stores through other mappings of an object are found by its frame.
            let version = is_object.then(|| match self.frame_to_read(at) {
                Ok(frame) if self.own.table.get(number).is_none() => {
                    Some((frame, self.frames.set_code(frame)))
                }
                Ok(_) => None,
                Err(_) => Some(UNKNOWN),
            });
            self.own.watch.insert(number, version.flatten());
            flush = true;
        }

        // Its entries would let stores pass without a check.
        if flush {
            self.tlb.flush_writes();
        }
    }

    /// Forgets that instructions were decoded anywhere.
    pub fn unwatch_code(&mut self) {
        self.own.watch.clear();
        self.unwatch_frames(None);
    }

    /// Takes the ranges of watched instructions that were written, unmapped, remapped or protected.
    pub fn take_code_changes(&mut self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.own.watch.changes)
    }

    /// Whether watched instructions have changed.
    #[inline]
    pub fn has_code_changes(&self) -> bool {
        !self.own.watch.changes.is_empty()
    }

    /// Whether stores to watched instructions are allowed; they are noted.
    pub fn set_code_writable(&mut self, writable: bool) {
        self.code_writable = writable;
    }

    #[cold]
    #[inline(never)]
    fn load_slow<const N: usize>(&mut self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        if let Err(fault) = canonical(address, N as u64, Access::Read) {
            return self.refuse(Refusal::Fault(fault));
        }
        if self.paging.is_some() {
            return match self.load_pages(address, &mut bytes) {
                Ok(true) => Some(bytes),
                Ok(false) => self.refuse(Refusal::Device),
                Err(fault) => self.refuse(Refusal::Fault(fault)),
            };
        }

        // Across two pages, the bytes are copied here, and the entry is for the first page only.
        let is_in_page = N <= rest_of_page(address);
        let usable = if is_in_page {
            let area = self.own.usable(address, Some(Access::Read), Access::Read);
            area.map(drop)
        } else {
            self.load(address, &mut bytes, Some(Access::Read))
        };
        if let Err(fault) = usable {
            return self.refuse(Refusal::Fault(fault));
        }

        let frame = match self.frame_to_read(address) {
            Ok(frame) => frame,
            Err(kind) => {
                return self.refuse(Refusal::Fault(Fault::new(address, Access::Read, kind)));
            }
        };

        let (start, base) = (address - address % PAGE_SIZE, Frames::base(frame));

        // From now on the page is found without a check.
        self.tlb.reads[index(address)] = TlbEntry { start, base };

        if is_in_page {
            let at = base + (address - start) as usize;
            bytes.copy_from_slice(&self.frames.bytes()[at..at + N]);
        }

        Some(bytes)
    }

    #[cold]
    #[inline(never)]
    fn store_slow(&mut self, address: u64, bytes: &[u8]) -> Option<()> {
        self.check_store_slow(address, bytes.len() as u64)?;
        if let Some(at) = hit(&self.tlb.writes, address, bytes.len()) {
            self.frames.bytes_mut()[at..at + bytes.len()].copy_from_slice(bytes);
            return Some(());
        }
        match self.store(address, bytes, Some(Access::Write)) {
            Ok(()) => Some(()),
            Err(fault) => self.refuse(Refusal::Fault(fault)),
        }
    }

    #[cold]
    #[inline(never)]
    fn check_store_slow(&mut self, address: u64, size: u64) -> Option<()> {
        let mut at = address;
        let end = address.wrapping_add(size);

        if let Err(fault) = canonical(address, size, Access::Write) {
            return self.refuse(Refusal::Fault(fault));
        }

        if self.paging.is_some() {
            return self.check_store_pages(address, end);
        }

        loop {
            if let Err(fault) = self.own.usable(at, Some(Access::Write), Access::Write) {
                return self.refuse(Refusal::Fault(fault));
            }

            // A store to decoded code has to tell the machine first.
            let is_code = self.is_code(at);
            if is_code && !self.code_writable {
                return self.refuse(Refusal::Code(address..end));
            }

            let frame = match self.frame_to_write(at) {
                Ok(frame) => frame,
                Err(kind) => {
                    return self.refuse(Refusal::Fault(Fault::new(at, Access::Write, kind)));
                }
            };

            let (start, base) = (at - at % PAGE_SIZE, Frames::base(frame));
            // Stores that use the table are not noted.
            if !is_code && self.own.changes.is_none() {
                self.tlb.add_write(TlbEntry { start, base });
            }

            // The last page of the address space has no next one.
            match start.checked_add(PAGE_SIZE) {
                Some(next) if next < end => at = next,
                _ => return Some(()),
            }
        }
    }

    /// Loads bytes of one or two pages in system mode. Returns false if they are a device's.
    fn load_pages(&mut self, address: u64, bytes: &mut [u8]) -> Result<bool, Fault> {
        let count = bytes.len().min(rest_of_page(address));
        let (first, second) = bytes.split_at_mut(count);
        Ok(self.load_paged(address, first)?
            && (second.is_empty()
                || self.load_paged(address.wrapping_add(count as u64), second)?))
    }

    /// Checks that the bytes up to `end` can be written in system mode.
    fn check_store_pages(&mut self, address: u64, end: u64) -> Option<()> {
        let last = end.wrapping_sub(1);
        let is_in_page = address / PAGE_SIZE == last / PAGE_SIZE;
        for at in [address, last - last % PAGE_SIZE]
            .into_iter()
            .take(2 - usize::from(is_in_page))
        {
            match self.check_store_paged(at) {
                Ok(None) => {}
                Ok(Some(Closed::Device)) => return self.refuse(Refusal::Device),
                Ok(Some(Closed::Code(range))) => return self.refuse(Refusal::Code(range)),
                Err(fault) => return self.refuse(Refusal::Fault(fault)),
            }
        }
        Some(())
    }

    #[cold]
    fn refuse<T>(&mut self, refusal: Refusal) -> Option<T> {
        self.refusal = Some(refusal);
        None
    }
}

/// Checks that all of a range is canonical. The processor checks this before it looks up pages.
fn canonical(address: u64, size: u64, access: Access) -> Result<(), Fault> {
    let last = address.wrapping_add(size).wrapping_sub(1);
    if matches!(last.cast_signed() >> 47, 0 | -1) {
        return Ok(());
    }
    Err(Fault {
        address: last,
        access,
        kind: FaultKind::NonCanonical,
    })
}

const fn rest_of_page(address: u64) -> usize {
    (PAGE_SIZE - address % PAGE_SIZE) as usize
}
