//! The memory of the machine in system mode: physical memory, and the page tables through which the
//! program sees it.
//!
//! Without it, [`AddressSpace`] is the memory of processes whose kernel is not executed. With it
//! ([`AddressSpace::with_paging`]), the same accesses go through four levels of page tables in one
//! contiguous physical memory. A translation that was used is found in the table of recent ones
//! (`fast`), of which there is one for each of user mode and ring 0; everything that decides whether
//! an access is allowed is here. Device registers are reached only while [`AddressSpace::set_devices_open`]
//! says so, since a device has to know the time.
//!
//! Source: Intel SDM volume 3, chapter "Paging": 4-level paging, access rights, accessed and dirty
//! flags. Not modelled: 5-level paging, protection keys, PCIDs, memory types.

use super::AddressSpace;
use super::fast::Tlb;
use super::fault::{Access, Fault, FaultKind};
use super::frames::Frames;
use super::limits::PAGE_SIZE;
use crate::system::devices::Devices;
use hashbrown::HashSet;
use std::ops::Range;

/// Bits of an entry of a page table.
mod entry {
    pub(super) const PRESENT: u64 = 1;
    pub(super) const WRITABLE: u64 = 1 << 1;
    pub(super) const USER: u64 = 1 << 2;
    pub(super) const ACCESSED: u64 = 1 << 5;
    pub(super) const DIRTY: u64 = 1 << 6;
    /// In the second and third level: a page, not a table.
    pub(super) const LARGE: u64 = 1 << 7;
    pub(super) const NO_EXECUTE: u64 = 1 << 63;
    /// The physical address.
    pub(super) const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
}

/// Width of a physical address, bits, as `cpuid` says.
pub(crate) const PHYSICAL_BITS: u32 = 40;
/// Bits of an entry that must be 0: of the address, those that the processor does not have.
const RESERVED: u64 = entry::ADDRESS & !((1 << PHYSICAL_BITS) - 1);
/// What a large page's entry must not have between its flags and its address: bit 12 is PAT.
const fn reserved_in_large(shift: u32) -> u64 {
    ((1 << shift) - 1) & !0x1fff
}
/// What physical memory that does not exist reads as.
const NOTHING: u8 = 0xff;

/// What the control registers say of paging.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Controls {
    /// The physical address of the first table.
    pub(crate) root: u64,
    /// CR0.WP: ring 0 may not write to pages that are not writable.
    pub(crate) write_protect: bool,
    /// EFER.NXE: entries can forbid execution.
    pub(crate) no_execute: bool,
    /// CR4.SMEP: ring 0 may not execute user pages.
    pub(crate) smep: bool,
    /// CR4.SMAP: ring 0 may use user pages only with EFLAGS.AC.
    pub(crate) smap: bool,
}

/// The state of paging, and what the physical address space holds beside memory.
#[derive(Clone, Debug)]
pub(crate) struct Paging {
    controls: Controls,
    /// Whether user mode runs.
    is_user: bool,
    /// EFLAGS.AC.
    ac: bool,
    /// The recent translations of the mode that does not run.
    other: Tlb,
    /// For each frame of memory, whether instructions were decoded from it.
    code: Vec<bool>,
    /// Increased whenever translations may have changed.
    epoch: u32,
    /// Whether there may be recent translations of pages of 1 GiB.
    has_huge: bool,
    /// The time, while devices may be accessed.
    open: Option<u64>,
    pub(crate) devices: Devices,
}

/// What a snapshot keeps of it. What it knows of translations and of decoded code is not restored.
#[derive(Clone, Debug)]
pub(crate) struct SavedPaging {
    controls: Controls,
    is_user: bool,
    ac: bool,
    devices: Devices,
}

/// Where a virtual address is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Translation {
    physical: u64,
    is_user: bool,
    /// Whether it is in a page of 1 GiB.
    is_huge: bool,
}

/// The entries that translate an address, from the last table to the first one.
struct Walk {
    /// Physical addresses of the entries, and the entries.
    entries: [(u64, u64); 4],
    count: usize,
    physical: u64,
    is_writable: bool,
    is_user: bool,
    no_execute: bool,
}

impl Paging {
    /// Whether ring 0, with the access rights that it has, or user mode may do this.
    fn allows(&self, walk: &Walk, access: Access, is_user: bool) -> bool {
        if is_user {
            return walk.is_user
                && match access {
                    Access::Read => true,
                    Access::Write => walk.is_writable,
                    Access::Execute => !walk.no_execute,
                };
        }
        let reachable = !walk.is_user || !self.controls.smap || self.ac;
        match access {
            Access::Read => reachable,
            Access::Write => reachable && (walk.is_writable || !self.controls.write_protect),
            Access::Execute => !(walk.no_execute || walk.is_user && self.controls.smep),
        }
    }

    /// Follows the page tables to an address.
    fn walk(&self, ram: &[u8], address: u64) -> Result<Walk, FaultKind> {
        let mut walk = Walk {
            entries: [(0, 0); 4],
            count: 0,
            physical: 0,
            is_writable: true,
            is_user: true,
            no_execute: false,
        };
        let mut table = self.controls.root & entry::ADDRESS;
        for level in (0..4).rev() {
            let shift = 12 + 9 * level;
            let at = table + (address >> shift & 0x1ff) * 8;
            let value = word(ram, at);
            if value & entry::PRESENT == 0 {
                return Err(FaultKind::Unmapped);
            }
            let mut reserved = RESERVED;
            if !self.controls.no_execute {
                reserved |= entry::NO_EXECUTE;
            }
            let is_large = value & entry::LARGE != 0 && level > 0;
            match level {
                3 if is_large => reserved |= entry::LARGE,
                _ if is_large => reserved |= reserved_in_large(shift),
                _ => {}
            }
            if value & reserved != 0 {
                return Err(FaultKind::Reserved);
            }
            walk.entries[walk.count] = (at, value);
            walk.count += 1;
            walk.is_writable &= value & entry::WRITABLE != 0;
            walk.is_user &= value & entry::USER != 0;
            walk.no_execute |= value & entry::NO_EXECUTE != 0;
            if is_large || level == 0 {
                let inside = (1 << shift) - 1;
                walk.physical = value & entry::ADDRESS & !inside | address & inside;
                break;
            }
            table = value & entry::ADDRESS;
        }
        Ok(walk)
    }

    /// Translates an address for an access, and marks the entries as accessed and dirty.
    fn translate(
        &self,
        frames: &mut Frames,
        address: u64,
        access: Access,
        is_user: bool,
    ) -> Result<Translation, Fault> {
        let fault = |kind| Fault::new(address, access, kind);
        let walk = self.walk(frames.bytes(), address).map_err(fault)?;
        if !self.allows(&walk, access, is_user) {
            return Err(fault(FaultKind::Protected));
        }
        for (number, &(at, value)) in walk.entries[..walk.count].iter().enumerate() {
            let is_dirty = access == Access::Write && number + 1 == walk.count;
            let marks = entry::ACCESSED | if is_dirty { entry::DIRTY } else { 0 };
            if value & marks != marks {
                frames.save((at / PAGE_SIZE) as u32);
                put(frames.bytes_mut(), at, value | marks);
            }
        }
        Ok(Translation {
            physical: walk.physical,
            is_user: walk.is_user,
            is_huge: walk.count == 2,
        })
    }

    /// Translates an address without an access; without regard to permissions if there is no `access`.
    fn peek(&self, ram: &[u8], address: u64, access: Option<Access>) -> Result<u64, Fault> {
        let fault = |kind| Fault::new(address, access.unwrap_or(Access::Read), kind);
        let walk = self.walk(ram, address).map_err(fault)?;
        match access {
            Some(access) if !self.allows(&walk, access, self.is_user) => {
                Err(fault(FaultKind::Protected))
            }
            _ => Ok(walk.physical),
        }
    }

    fn is_code(&self, physical: u64) -> bool {
        let frame = (physical / PAGE_SIZE) as usize;
        self.code.get(frame).copied().unwrap_or(false)
    }

    fn set_code(&mut self, physical: u64, is_code: bool) {
        if let Some(frame) = self.code.get_mut((physical / PAGE_SIZE) as usize) {
            *frame = is_code;
        }
    }
}

fn word(ram: &[u8], at: u64) -> u64 {
    let bytes = usize::try_from(at).ok().and_then(|at| ram.get(at..at + 8));
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(u64::MAX, u64::from_le_bytes)
}

fn put(ram: &mut [u8], at: u64, value: u64) {
    let bytes = usize::try_from(at)
        .ok()
        .and_then(|at| ram.get_mut(at..at + 8));
    if let Some(bytes) = bytes {
        bytes.copy_from_slice(&value.to_le_bytes());
    }
}

/// What an access of the machine found at a physical address.
pub(super) enum Physical {
    /// Memory, at this offset.
    Memory(usize),
    /// A device, which may not be accessed yet.
    Closed,
    /// A device, at a time.
    Device(u64),
    /// Nothing.
    Nothing,
}

impl AddressSpace {
    /// The memory of a machine in system mode, all zeros. The size is rounded up to whole pages.
    pub(crate) fn with_paging(bytes: usize, devices: Devices) -> AddressSpace {
        let mut memory = AddressSpace::default();
        let frames = memory.frames.make_flat(bytes);
        memory.paging = Some(Box::new(Paging {
            controls: Controls::default(),
            is_user: false,
            ac: false,
            other: Tlb::default(),
            code: vec![false; frames],
            epoch: 0,
            has_huge: false,
            open: None,
            devices,
        }));
        memory
    }

    /// The state of paging of a machine in system mode.
    pub(crate) fn paging(&mut self) -> Option<&mut Paging> {
        self.paging.as_deref_mut()
    }

    /// Physical memory.
    pub(crate) fn physical(&self) -> &[u8] {
        self.frames.bytes()
    }

    /// Physical memory, to be changed before the machine runs.
    pub(crate) fn physical_mut(&mut self) -> &mut [u8] {
        self.frames.bytes_mut()
    }

    /// Lets instructions access devices, at a time, or no longer.
    pub(crate) fn set_devices_open(&mut self, now: Option<u64>) {
        if let Some(paging) = &mut self.paging {
            paging.open = now;
        }
    }

    /// A number that changes whenever translations may have changed, and whether user mode runs.
    pub(crate) fn translation_epoch(&self) -> (u32, bool) {
        self.paging
            .as_ref()
            .map_or((0, false), |paging| (paging.epoch, paging.is_user))
    }

    /// Sets what the control registers say, and forgets all translations.
    pub(crate) fn set_paging(&mut self, controls: Controls) {
        if let Some(paging) = &mut self.paging {
            paging.controls = controls;
        }
        self.forget_translations();
    }

    /// What the control registers say.
    pub(crate) fn paging_controls(&self) -> Controls {
        let paging = self.paging.as_ref();
        paging.map_or(Controls::default(), |paging| paging.controls)
    }

    /// What a snapshot has to know beside memory.
    pub(super) fn save_paging(&mut self) -> Option<SavedPaging> {
        self.paging.as_deref_mut()?.other.flush_writes();
        self.saved_paging()
    }

    /// The state of paging, beside memory.
    pub(crate) fn saved_paging(&self) -> Option<SavedPaging> {
        let paging = self.paging.as_deref()?;
        Some(SavedPaging {
            controls: paging.controls,
            is_user: paging.is_user,
            ac: paging.ac,
            devices: paging.devices.clone(),
        })
    }

    /// Goes back to what was saved, after these frames got their content of that time.
    pub(super) fn restore_paging(&mut self, saved: &SavedPaging, changed: &HashSet<u32>) {
        if let Some(paging) = &mut self.paging {
            paging.controls = saved.controls;
            paging.is_user = saved.is_user;
            paging.ac = saved.ac;
            paging.devices = saved.devices.clone();
        }
        for frame in changed {
            self.note_code_change(u64::from(*frame) * PAGE_SIZE);
        }
        self.forget_translations();
    }

    /// Forgets all translations.
    pub(crate) fn forget_translations(&mut self) {
        self.tlb.flush();
        if let Some(paging) = &mut self.paging {
            paging.other.flush();
            paging.has_huge = false;
            paging.epoch = paging.epoch.wrapping_add(1);
        }
    }

    /// Forgets the translation of an address. It can have been that of a large page.
    pub(crate) fn forget_translation(&mut self, address: u64) {
        // Pages of 1 GiB are rare, so which of them is not looked at.
        if self.paging.as_ref().is_some_and(|paging| paging.has_huge) {
            return self.forget_translations();
        }
        self.tlb.forget_around(address);
        if let Some(paging) = &mut self.paging {
            paging.other.forget_around(address);
            paging.epoch = paging.epoch.wrapping_add(1);
        }
    }

    /// Says whether user mode runs, and whether AC is set.
    pub(crate) fn set_mode(&mut self, is_user: bool, ac: bool) {
        let Some(paging) = &mut self.paging else {
            return;
        };
        if paging.is_user != is_user {
            std::mem::swap(&mut self.tlb, &mut paging.other);
            paging.is_user = is_user;
        }
        // With SMAP, translations of user pages hold in ring 0 only as long as AC is set.
        if paging.ac && !ac && paging.controls.smap {
            let ring0 = if is_user {
                &mut paging.other
            } else {
                &mut self.tlb
            };
            ring0.forget_lent();
        }
        paging.ac = ac;
    }

    /// The physical address of an instruction.
    pub(crate) fn translate_code(&mut self, address: u64) -> Result<u64, Fault> {
        let Some(paging) = &self.paging else {
            return Ok(address);
        };
        canonical(address, Access::Execute)?;
        let is_user = paging.is_user;
        let found = paging.translate(&mut self.frames, address, Access::Execute, is_user)?;
        Ok(found.physical)
    }

    /// Loads a word as the processor itself does, with the rights of ring 0 whatever runs: of
    /// descriptor tables and the task state segment.
    pub(crate) fn load_implicit(&mut self, address: u64) -> Result<u64, Fault> {
        let mut bytes = [0; 8];
        for (number, byte) in bytes.iter_mut().enumerate() {
            let at = address.wrapping_add(number as u64);
            let physical = self.translate_implicit(at, Access::Read)?;
            *byte = self
                .frames
                .bytes()
                .get(physical)
                .copied()
                .unwrap_or(NOTHING);
        }
        Ok(u64::from_le_bytes(bytes))
    }

    /// Stores bytes as the processor itself does, all of them or none.
    pub(crate) fn store_implicit(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        // As if words were pushed one by one: the highest comes first, then the highest of the lower page.
        let top = address.wrapping_add(bytes.len().saturating_sub(8) as u64);
        self.translate_implicit(top, Access::Write)?;
        if top / PAGE_SIZE != address / PAGE_SIZE {
            let lower = (top - top % PAGE_SIZE).wrapping_sub(8);
            self.translate_implicit(lower, Access::Write)?;
        }
        for (number, &byte) in bytes.iter().enumerate() {
            let at = address.wrapping_add(number as u64);
            let physical = self.translate_implicit(at, Access::Write)?;
            if physical < self.frames.bytes().len() {
                self.frames.save((physical as u64 / PAGE_SIZE) as u32);
                self.frames.bytes_mut()[physical] = byte;
            }
            self.note_code_change(physical as u64);
        }
        Ok(())
    }

    fn translate_implicit(&mut self, address: u64, access: Access) -> Result<usize, Fault> {
        canonical(address, access)?;
        let Some(paging) = &self.paging else {
            return Err(Fault::new(address, access, FaultKind::Unmapped));
        };
        let found = paging.translate(&mut self.frames, address, access, false)?;
        Ok(found.physical as usize)
    }

    /// If instructions were decoded from the page of a physical address, reports that they changed.
    fn note_code_change(&mut self, physical: u64) {
        let Some(paging) = &mut self.paging else {
            return;
        };
        if paging.is_code(physical) {
            paging.set_code(physical, false);
            self.own.watch.changes.push(page_of(physical));
        }
    }

    /// Notes that instructions were decoded from the pages of physical addresses.
    pub(crate) fn watch_frames(&mut self, pages: impl Iterator<Item = u64>) {
        let Some(paging) = &mut self.paging else {
            return;
        };
        for physical in pages {
            if !paging.is_code(physical) {
                paging.set_code(physical, true);
                // Their entries would let stores pass without a check.
                self.tlb.flush_writes();
                paging.other.flush_writes();
            }
        }
    }

    /// Notes that no instructions are known any longer that were decoded from any frame, or of those
    /// of a range.
    pub(super) fn unwatch_frames(&mut self, range: Option<&Range<u64>>) {
        let Some(paging) = &mut self.paging else {
            return;
        };
        match range {
            None => paging.code.fill(false),
            Some(range) => paging.set_code(range.start, false),
        }
    }

    /// What an access in system mode finds; also, whether it is a user page.
    fn reach(&mut self, address: u64, access: Access) -> Result<(Physical, Translation), Fault> {
        let Some(paging) = &mut self.paging else {
            return Err(Fault::new(address, access, FaultKind::Unmapped));
        };
        let is_user = paging.is_user;
        let found = paging.translate(&mut self.frames, address, access, is_user)?;
        paging.has_huge |= found.is_huge;
        let at = found.physical;
        let what = if paging.devices.is_device(at) {
            match paging.open {
                Some(now) => Physical::Device(now),
                None => Physical::Closed,
            }
        } else if at < self.frames.bytes().len() as u64 {
            Physical::Memory(at as usize)
        } else {
            Physical::Nothing
        };
        Ok((what, found))
    }

    /// Loads bytes of one page. Returns false if a device has to be opened first. If it was memory, its
    /// page is found without a check from now on.
    pub(super) fn load_paged(&mut self, address: u64, bytes: &mut [u8]) -> Result<bool, Fault> {
        let (what, found) = self.reach(address, Access::Read)?;
        match what {
            Physical::Closed => return Ok(false),
            Physical::Nothing => bytes.fill(NOTHING),
            Physical::Device(now) => {
                if let Some(paging) = &mut self.paging {
                    let value = paging
                        .devices
                        .mmio_read(found.physical, bytes.len(), now)
                        .to_le_bytes();
                    let count = bytes.len().min(value.len());
                    bytes[..count].copy_from_slice(&value[..count]);
                }
            }
            Physical::Memory(at) => {
                let is_lent = self.is_lent(&found);
                self.tlb.add_read_page(address, at, is_lent);
                let end = at + bytes.len();
                bytes.copy_from_slice(&self.frames.bytes()[at..end]);
            }
        }
        Ok(true)
    }

    /// Whether ring 0 may use this page only as long as AC is set.
    fn is_lent(&self, found: &Translation) -> bool {
        let paging = self.paging.as_ref();
        found.is_user && paging.is_some_and(|paging| !paging.is_user && paging.controls.smap)
    }

    /// Checks that the page of an address can be written. `Ok(None)`: it can; otherwise why it must not
    /// be yet.
    pub(super) fn check_store_paged(&mut self, address: u64) -> Result<Option<Closed>, Fault> {
        let (what, found) = self.reach(address, Access::Write)?;
        match what {
            Physical::Closed => return Ok(Some(Closed::Device)),
            Physical::Memory(at) => {
                let is_code = self
                    .paging
                    .as_ref()
                    .is_some_and(|paging| paging.is_code(found.physical));
                if is_code && !self.code_writable {
                    return Ok(Some(Closed::Code(page_of(found.physical))));
                }
                let frame = at as u64 / PAGE_SIZE;
                self.frames.save(frame as u32);
                if !is_code {
                    let is_lent = self.is_lent(&found);
                    self.tlb.add_write_page(address, at, is_lent);
                }
            }
            Physical::Device(_) | Physical::Nothing => {}
        }
        Ok(None)
    }

    /// Loads bytes for debuggers, observers and the decoder: no entry is marked as accessed.
    pub(super) fn load_through_tables(
        &self,
        paging: &Paging,
        address: u64,
        buf: &mut [u8],
        access: Option<Access>,
    ) -> Result<(), Fault> {
        let mut done = 0;
        while done < buf.len() {
            let at = address.wrapping_add(done as u64);
            canonical(at, access.unwrap_or(Access::Read))?;
            let count = (buf.len() - done).min((PAGE_SIZE - at % PAGE_SIZE) as usize);
            let physical = paging.peek(self.frames.bytes(), at, access)? as usize;
            let to = &mut buf[done..done + count];
            match self.frames.bytes().get(physical..physical + count) {
                Some(from) => to.copy_from_slice(from),
                None => to.fill(NOTHING),
            }
            done += count;
        }
        Ok(())
    }

    /// Stores all bytes, or none. Without `access`, permissions do not matter.
    pub(super) fn store_through_tables(
        &mut self,
        address: u64,
        bytes: &[u8],
        access: Option<Access>,
    ) -> Result<(), Fault> {
        let mut parts = Vec::new();
        let mut done = 0;
        while done < bytes.len() {
            let at = address.wrapping_add(done as u64);
            canonical(at, Access::Write)?;
            let count = (bytes.len() - done).min((PAGE_SIZE - at % PAGE_SIZE) as usize);
            let Some(paging) = &self.paging else { break };
            let is_user = paging.is_user;
            let physical = match access {
                None => paging.peek(self.frames.bytes(), at, None)?,
                Some(access) => {
                    let frames = &mut self.frames;
                    paging.translate(frames, at, access, is_user)?.physical
                }
            };
            parts.push((physical, done..done + count));
            done += count;
        }
        for (physical, range) in parts {
            self.store_physical(physical, &bytes[range]);
        }
        Ok(())
    }

    /// Stores bytes of one page at a physical address.
    fn store_physical(&mut self, physical: u64, bytes: &[u8]) {
        let Some(paging) = &mut self.paging else {
            return;
        };
        if paging.devices.is_device(physical) {
            if let Some(now) = paging.open {
                let mut value = [0; 8];
                let count = bytes.len().min(value.len());
                value[..count].copy_from_slice(&bytes[..count]);
                let value = u64::from_le_bytes(value);
                paging.devices.mmio_write(physical, bytes.len(), value, now);
            }
            return;
        }
        let at = physical as usize;
        if at + bytes.len() <= self.frames.bytes().len() {
            self.frames.save((physical / PAGE_SIZE) as u32);
            self.frames.bytes_mut()[at..at + bytes.len()].copy_from_slice(bytes);
            self.note_code_change(physical);
        }
    }
}

/// Why a page must not be written yet.
pub(super) enum Closed {
    /// Instructions were decoded from these physical addresses.
    Code(Range<u64>),
    /// It is a device's.
    Device,
}

fn page_of(physical: u64) -> Range<u64> {
    let start = physical - physical % PAGE_SIZE;
    start..start + PAGE_SIZE
}

fn canonical(address: u64, access: Access) -> Result<(), Fault> {
    if matches!(address.cast_signed() >> 47, 0 | -1) {
        return Ok(());
    }
    Err(Fault::new(address, access, FaultKind::NonCanonical))
}
