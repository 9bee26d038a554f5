//! Virtual addresses of the kernel: page tables walked in the dump.
//!
//! Source: Intel SDM volume 3, section 4.5 (4-level and 5-level paging, pages of 4 KiB, 2 MiB and
//! 1 GiB).

use super::dump::Dump;
use super::error::Fault;
use std::cell::RefCell;

const PRESENT: u64 = 1;
const LARGE: u64 = 1 << 7;
/// Bits of the physical address in an entry.
const FRAME: u64 = 0x000f_ffff_ffff_f000;
const PAGE: u64 = 4096;
/// Translations that are kept; a power of two.
const KEPT: usize = 1024;

/// Page tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tables {
    /// Physical address of the topmost.
    pub(super) root: u64,
    /// 5 or 4.
    pub(super) levels: u8,
}

/// The kernel's address space in a dump.
pub(super) struct Virtual<'d, 'm> {
    pub(super) dump: &'d Dump<'m>,
    pub(super) tables: Tables,
    /// Page number and physical address.
    kept: RefCell<Vec<(u64, u64)>>,
}

impl<'d, 'm> Virtual<'d, 'm> {
    pub(super) fn new(dump: &'d Dump<'m>, tables: Tables) -> Self {
        let kept = RefCell::new(vec![(u64::MAX, 0); KEPT]);
        Virtual { dump, tables, kept }
    }

    /// The physical address.
    pub(super) fn translate(&self, address: u64) -> Result<u64, Fault> {
        let page = address / PAGE;
        let slot = page as usize % KEPT;
        let (known, physical) = self.kept.borrow()[slot];
        if known == page {
            return Ok(physical + address % PAGE);
        }
        let physical = self.walk(address)?;
        self.kept.borrow_mut()[slot] = (page, physical & !(PAGE - 1));
        Ok(physical)
    }

    fn walk(&self, address: u64) -> Result<u64, Fault> {
        let mut table = self.tables.root & FRAME;
        for level in (1..=self.tables.levels).rev() {
            let shift = 12 + 9 * u32::from(level - 1);
            let at = table + (address >> shift & 0x1ff) * 8;
            let word = self.dump.at(at).and_then(|b| b.first_chunk());
            let entry = word.map(|b| u64::from_le_bytes(*b));
            let physical = at;
            let entry = entry.ok_or(Fault::NotInDump { address, physical })?;
            if entry & PRESENT == 0 {
                return Err(Fault::NotMapped { address, level });
            }
            let inside = address & ((1 << shift) - 1);
            match level {
                1 => return Ok(entry & FRAME | inside),
                2 | 3 if entry & LARGE != 0 => {
                    return Ok(entry & FRAME & !((1 << shift) - 1) | inside);
                }
                4 | 5 if entry & LARGE != 0 => return Err(Fault::BadEntry { address, entry }),
                _ => table = entry & FRAME,
            }
        }
        Err(Fault::NotMapped { address, level: 0 })
    }

    /// Reads as many bytes as `out` has.
    pub(super) fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Fault> {
        let mut done = 0;
        while done < out.len() {
            let here = address.wrapping_add(done as u64);
            let physical = self.translate(here)?;
            let fault = Fault::NotInDump {
                address: here,
                physical,
            };
            let data = self.dump.at(physical).ok_or(fault)?;
            let in_page = (PAGE - here % PAGE) as usize;
            let len = in_page.min(data.len()).min(out.len() - done);
            if len == 0 {
                return Err(fault);
            }
            out[done..done + len].copy_from_slice(&data[..len]);
            done += len;
        }
        Ok(())
    }

    /// `len` bytes, which the caller has bounded.
    pub(super) fn bytes(&self, address: u64, len: usize) -> Result<Vec<u8>, Fault> {
        let mut out = vec![0; len];
        self.read(address, &mut out)?;
        Ok(out)
    }

    pub(super) fn u64(&self, address: u64) -> Result<u64, Fault> {
        let mut out = [0; 8];
        self.read(address, &mut out)?;
        Ok(u64::from_le_bytes(out))
    }

    pub(super) fn u32(&self, address: u64) -> Result<u32, Fault> {
        let mut out = [0; 4];
        self.read(address, &mut out)?;
        Ok(u32::from_le_bytes(out))
    }

    /// Text up to the first zero, at most `max` bytes, as far as it can be read.
    pub(super) fn text(&self, address: u64, max: usize) -> String {
        let mut out = Vec::new();
        for at in 0..max as u64 {
            let mut byte = [0];
            match self.read(address.wrapping_add(at), &mut byte) {
                Ok(()) if byte[0] != 0 => out.push(byte[0]),
                _ => break,
            }
        }
        String::from_utf8_lossy(&out).into_owned()
    }
}
