//! Walks x86-64 page tables in any memory.
//!
//! Source: Intel SDM volume 3, section 4.5 (4-level and 5-level paging, pages of 4 KiB, 2 MiB and
//! 1 GiB).

const PRESENT: u64 = 1;
const LARGE: u64 = 1 << 7;
/// The bits of an entry, and of cr3, that hold the physical address.
const PAGE_FRAME: u64 = 0x000f_ffff_ffff_f000;
/// With page table isolation, the user page tables are in the page after the kernel's.
pub const PTI_USER: u64 = 1 << 12;

/// The page tables of an address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageTables {
    /// Physical address of the top-level table.
    pub root: u64,
    /// Number of levels, 4 or 5.
    pub levels: u8,
}

/// Why an address has no physical address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageFault<E> {
    /// The entry in the table of this level is not present.
    NotMapped(u8),
    /// The entry is invalid.
    BadEntry(u64),
    /// The entry at this physical address cannot be read.
    NoEntry(u64, E),
}

impl PageTables {
    /// Translates `address` to a physical address. `entry` reads the word at a physical address.
    ///
    /// # Errors
    /// If the address is not mapped or the tables cannot be read.
    pub fn translate<E>(
        self,
        address: u64,
        entry: &mut dyn FnMut(u64) -> Result<u64, E>,
    ) -> Result<u64, PageFault<E>> {
        let mut table = self.root & PAGE_FRAME;

        for level in (1..=self.levels).rev() {
            let shift = 12 + 9 * u32::from(level - 1);
            // A table has 512 entries of 8 bytes (Intel SDM volume 3, 4.5).
            let at = table + (address >> shift & 0x1ff) * 8;

            let entry = entry(at).map_err(|error| PageFault::NoEntry(at, error))?;
            if entry & PRESENT == 0 {
                return Err(PageFault::NotMapped(level));
            }

            let inside = address & ((1 << shift) - 1);
            match level {
                1 => return Ok(entry & PAGE_FRAME | inside),
                2 | 3 if entry & LARGE != 0 => {
                    return Ok(entry & PAGE_FRAME & !((1 << shift) - 1) | inside);
                }
                // Bit 7 is reserved in entries of these levels (Intel SDM volume 3, 4.5).
                4 | 5 if entry & LARGE != 0 => return Err(PageFault::BadEntry(entry)),
                _ => table = entry & PAGE_FRAME,
            }
        }
        Err(PageFault::NotMapped(0))
    }
}
