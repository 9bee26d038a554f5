//! Reads the two sections of a table in place, and searches them like Linux.
//!
//! `.orc_unwind_ip` has the start of each entry, relative to its slot; `.orc_unwind` has the
//! entries. Layouts are detected in `detect`; the meaning of an entry is in `entry`.

use super::entry::{ENTRY_LEN, Entry};
use super::layout::Layout;
use crate::reason::Reason;
use alloc::vec::Vec;

/// What is wrong with a table, and where.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[error("{section}+{offset:#x}: {what}")]
pub struct Malformed {
    /// The section's name.
    pub section: &'static str,
    /// Offset in the section, bytes.
    pub offset: u64,
    /// What is wrong.
    pub what: &'static str,
}

impl From<Malformed> for Reason {
    fn from(m: Malformed) -> Self {
        Reason::MalformedRow {
            section: m.section,
            offset: m.offset,
            what: m.what,
        }
    }
}

/// A table's bytes, with the entries in stored order.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    entries: &'a [[u8; ENTRY_LEN]],
    ips: &'a [[u8; 4]],
    ips_address: u64,
}

impl<'a> Table<'a> {
    /// The table in these two sections; `ips_address` is the load address of `.orc_unwind_ip`
    /// (svma).
    pub fn new(entries: &'a [u8], ips: &'a [u8], ips_address: u64) -> Result<Self, Malformed> {
        let wrong = |section, bytes: usize, what| Malformed {
            section,
            offset: bytes as u64,
            what,
        };

        // Entries have 6 bytes and addresses 4, without a header that could say how many there are.
        let (entries, rest) = entries.as_chunks();
        if !rest.is_empty() {
            let at = entries.len() * ENTRY_LEN;
            return Err(wrong(".orc_unwind", at, "the section ends within an entry"));
        }

        let (ips, rest) = ips.as_chunks();
        if !rest.is_empty() {
            let at = ips.len() * 4;
            return Err(wrong(
                ".orc_unwind_ip",
                at,
                "the section ends within an address",
            ));
        }

        // An address belongs to the entry at the same position.
        if ips.len() != entries.len() {
            let at = ips.len().min(entries.len()) * 4;
            return Err(wrong(
                ".orc_unwind_ip",
                at,
                "number of addresses differs from number of entries",
            ));
        }

        Ok(Table {
            entries,
            ips,
            ips_address,
        })
    }

    /// The number of entries.
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The bytes of entry `index`.
    pub fn bytes(&self, index: usize) -> Option<[u8; ENTRY_LEN]> {
        self.entries.get(index).copied()
    }

    /// The flag bits of entry `index`, i.e. all except the offsets.
    pub fn flags(&self, index: usize) -> Option<u16> {
        self.bytes(index)
            .map(|[.., e, f]| u16::from_le_bytes([e, f]))
    }

    /// The start of entry `index` (svma).
    pub fn ip(&self, index: usize) -> Option<u64> {
        let relative = i32::from_le_bytes(*self.ips.get(index)?);
        let slot = self.ips_address.wrapping_add(4 * index as u64);
        Some(slot.wrapping_add(i64::from(relative) as u64))
    }

    /// The decoded entry `index`.
    pub fn entry(&self, index: usize, layout: Layout) -> Option<Result<Entry, Malformed>> {
        let entry = Entry::decode(self.bytes(index)?, layout);
        Some(entry.map_err(|what| Malformed {
            section: ".orc_unwind",
            offset: (index * ENTRY_LEN) as u64,
            what,
        }))
    }

    /// Whether every entry can be decoded in this layout. That depends on its flags only.
    pub fn is_valid(&self, layout: Layout) -> bool {
        let mut seen = [0_u64; 1 << 10];
        for [.., e, f] in self.entries {
            let flags = u16::from_le_bytes([*e, *f]);
            seen[usize::from(flags >> 6)] |= 1 << (flags & 63);
        }
        let decodes = |flags: u16| {
            let [e, f] = flags.to_le_bytes();
            Entry::decode([0, 0, 0, 0, e, f], layout).is_ok()
        };
        let is_seen = |flags: u16| seen[usize::from(flags >> 6)] >> (flags & 63) & 1 != 0;
        (0..=u16::MAX).filter(|f| is_seen(*f)).all(decodes)
    }

    /// The order of the entries by address, as sorted by `sorttable` and module loading: the weak
    /// one comes first if several have the same address. `None` if they are stored in that order.
    pub fn order(&self, layout: Layout) -> Option<Vec<u32>> {
        let key = |index: usize| {
            let flags = self.flags(index).unwrap_or(0);
            (self.ip(index), !layout.is_weak(flags))
        };
        if (0..self.len()).map(key).is_sorted() {
            return None;
        }
        let len = u32::try_from(self.len()).unwrap_or(u32::MAX);
        let mut order: Vec<u32> = (0..len).collect();
        order.sort_by_key(|&i| key(i as usize));
        Some(order)
    }
}

/// A table sorted by address, as Linux has it after boot or after loading a module.
#[derive(Clone, Copy, Debug)]
pub struct Sorted<'a> {
    table: Table<'a>,
    order: Option<&'a [u32]>,
}

impl<'a> Sorted<'a> {
    /// `table` in the `order` returned by [`Table::order`].
    pub const fn new(table: Table<'a>, order: Option<&'a [u32]>) -> Self {
        Sorted { table, order }
    }

    /// The table as stored, whose positions are those of the file.
    pub const fn table(&self) -> &Table<'a> {
        &self.table
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.order.map_or(self.table.len(), <[u32]>::len)
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The stored index of the entry at `position`.
    pub fn stored(&self, position: usize) -> Option<usize> {
        match self.order {
            None => (position < self.table.len()).then_some(position),
            Some(order) => order.get(position).map(|i| *i as usize),
        }
    }

    /// The start of the entry at `position` (svma).
    pub fn ip(&self, position: usize) -> Option<u64> {
        self.table.ip(self.stored(position)?)
    }

    /// `__orc_find` over all entries: the position of the last entry that starts at or before
    /// `svma`, or, as in Linux, the first entry if there is none. So every address is covered, and
    /// a gap belongs to the entry before it. `None` only for an empty table.
    pub fn find(&self, svma: u64) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let mid = low + (high - low) / 2;
            if self.ip(mid)? <= svma {
                low = mid + 1;
            } else {
                high = mid;
            }
        }
        Some(low.saturating_sub(1))
    }
}

/// Bytes of text per slot of `.orc_lookup` (Linux `LOOKUP_BLOCK_SIZE`).
pub const LOOKUP_BLOCK_SIZE: u64 = 256;

/// `.orc_lookup`: for every block of the kernel's text, the position of its first entry. Linux
/// fills it at boot (`unwind_init`), so that a search looks at the entries of one block. In a
/// sorted table a search of all entries ends at the same one, so only the bounds are kept.
#[derive(Clone, Debug)]
pub struct Blocks {
    start: u64,
    end: u64,
}

/// The maximum size of a kernel's text: the address range that it is mapped in (Linux
/// `Documentation/arch/x86/x86_64/mm.rst`, "kernel text mapping").
const TEXT_MAX: u64 = 1 << 30;

impl Blocks {
    /// The lookup table for text at `start..end` (svma). `None` for an empty table or more than 1
    /// GiB of text.
    pub fn new(table: &Sorted<'_>, start: u64, end: u64) -> Option<Blocks> {
        end.checked_sub(start).filter(|size| *size <= TEXT_MAX)?;
        (!table.is_empty()).then_some(Blocks { start, end })
    }

    /// The position that `orc_find` finds through the address's block; `None` outside the blocks.
    /// The entries of the last block start at or before the end of the text.
    pub fn find(&self, table: &Sorted<'_>, svma: u64) -> Option<usize> {
        // The last block may be larger than what is left of the text.
        let blocks = (self.end - self.start).next_multiple_of(LOOKUP_BLOCK_SIZE);
        let is_inside = svma.checked_sub(self.start).is_some_and(|at| at < blocks);
        table.find(svma.min(self.end)).filter(|_| is_inside)
    }
}

#[cfg(test)]
mod tests;
