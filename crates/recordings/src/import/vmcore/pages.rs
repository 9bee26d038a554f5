//! The kernel's virtual memory: walks the page tables in the dump.

use super::dump::Dump;
use super::error::Fault;
use crate::kernel::{PageFault, PageTables};
use std::cell::RefCell;

const PAGE: u64 = 4096;
/// Number of cached translations; a power of two.
const KEPT: usize = 1024;

/// A kernel's memory, by virtual address.
pub trait KernelMemory {
    /// Fills `out` with the bytes at `address`.
    ///
    /// # Errors
    /// If not all of them can be read.
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Fault>;

    /// Reads `len` bytes. The caller must bound `len`.
    ///
    /// # Errors
    /// See [`KernelMemory::read`].
    fn bytes(&self, address: u64, len: usize) -> Result<Vec<u8>, Fault> {
        let mut out = vec![0; len];
        self.read(address, &mut out)?;
        Ok(out)
    }

    /// Reads an eight-byte word.
    ///
    /// # Errors
    /// See [`KernelMemory::read`].
    fn u64(&self, address: u64) -> Result<u64, Fault> {
        let mut out = [0; 8];
        self.read(address, &mut out)?;
        Ok(u64::from_le_bytes(out))
    }

    /// Reads a four-byte word.
    ///
    /// # Errors
    /// See [`KernelMemory::read`].
    fn u32(&self, address: u64) -> Result<u32, Fault> {
        let mut out = [0; 4];
        self.read(address, &mut out)?;
        Ok(u32::from_le_bytes(out))
    }

    /// Reads text up to the first NUL, at most `max` bytes, as far as it is readable.
    fn text(&self, address: u64, max: usize) -> String {
        /// Bytes read at once; they do not cross a page boundary.
        const PIECE: usize = 64;
        let (mut out, mut most) = (Vec::new(), PIECE);

        while out.len() < max {
            let at = address.wrapping_add(out.len() as u64);
            // The next page may not be readable, which must not lose the text before it.
            let in_page = (PAGE - at % PAGE) as usize;
            let mut piece = [0; PIECE];
            let piece = &mut piece[..most.min(in_page).min(max - out.len())];

            if self.read(at, piece).is_err() {
                if most == 1 {
                    break;
                }
                // The readable memory may end in the middle of the piece.
                most = 1;
                continue;
            }

            let len = piece.iter().position(|byte| *byte == 0);
            out.extend_from_slice(&piece[..len.unwrap_or(piece.len())]);
            if len.is_some() {
                break;
            }
        }

        String::from_utf8_lossy(&out).into_owned()
    }
}

/// A virtual address space in a dump.
pub(super) struct Virtual<'d, 'm> {
    pub(super) dump: &'d Dump<'m>,
    pub(super) tables: PageTables,
    /// Cached page numbers and physical addresses.
    kept: RefCell<Vec<(u64, u64)>>,
}

impl<'d, 'm> Virtual<'d, 'm> {
    pub(super) fn new(dump: &'d Dump<'m>, tables: PageTables) -> Self {
        let kept = RefCell::new(vec![(u64::MAX, 0); KEPT]);
        Virtual { dump, tables, kept }
    }

    /// Translates `address` to a physical address.
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
        let mut entry = |at: u64| {
            let word = self.dump.at(at).and_then(|b| b.first_chunk());
            word.map(|b| u64::from_le_bytes(*b)).ok_or(())
        };
        let physical = self.tables.translate(address, &mut entry);
        physical.map_err(|fault| match fault {
            PageFault::NotMapped(level) => Fault::NotMapped { address, level },
            PageFault::BadEntry(entry) => Fault::BadEntry { address, entry },
            PageFault::NoEntry(physical, ()) => Fault::NotInDump { address, physical },
        })
    }
}

impl KernelMemory for Virtual<'_, '_> {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Fault> {
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
}
