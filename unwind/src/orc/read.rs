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

    /// The table.
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
        self.find_in(svma, 0..self.len())
    }

    /// [`Sorted::find`] for an address not below that of the entry at `from`, in steps that double.
    fn find_from(&self, svma: u64, from: usize) -> Option<usize> {
        let mut end = self.len();
        let mut step = 1;
        while let Some(ip) = self.ip(from.saturating_add(step)) {
            if ip > svma {
                end = from + step;
                break;
            }
            step *= 2;
        }
        self.find_in(svma, from + step / 2..end)
    }

    fn find_in(&self, svma: u64, range: core::ops::Range<usize>) -> Option<usize> {
        if range.is_empty() {
            return None;
        }
        let (mut low, mut high) = (range.start, range.end);
        while low < high {
            let mid = low + (high - low) / 2;
            if self.ip(mid)? <= svma {
                low = mid + 1;
            } else {
                high = mid;
            }
        }
        Some(low.saturating_sub(1).max(range.start))
    }
}

/// Bytes of text per slot of `.orc_lookup` (Linux `LOOKUP_BLOCK_SIZE`).
pub const LOOKUP_BLOCK_SIZE: u64 = 256;

/// `.orc_lookup`: for every block of the kernel's text, the position of its first entry. Linux
/// fills it at boot (`unwind_init`).
#[derive(Clone, Debug)]
pub struct Blocks {
    start: u64,
    slots: Vec<u32>,
}

/// The maximum size of a kernel's text: the address range that it is mapped in (Linux
/// `Documentation/arch/x86/x86_64/mm.rst`, "kernel text mapping").
const TEXT_MAX: u64 = 1 << 30;

impl Blocks {
    /// The lookup table for text at `start..end` (svma). `None` for an empty table or more than 1
    /// GiB of text.
    pub fn new(table: &Sorted<'_>, start: u64, end: u64) -> Option<Blocks> {
        let size = end.checked_sub(start).filter(|size| *size <= TEXT_MAX)?;
        let count = size.div_ceil(LOOKUP_BLOCK_SIZE);
        let at = |i: u64| start.wrapping_add(i * LOOKUP_BLOCK_SIZE);
        let addresses = (0..count).map(at).chain([end]);
        // The addresses ascend, so each is searched from where the last one was found.
        let mut from = 0;
        let slots = addresses.map(|address| {
            from = table.find_from(address, from)?;
            Some(from as u32)
        });
        Some(Blocks {
            start,
            slots: slots.collect::<Option<_>>()?,
        })
    }

    /// The position that `orc_find` finds through the address's block; `None` outside the text.
    pub fn find(&self, table: &Sorted<'_>, svma: u64) -> Option<usize> {
        let block = svma.checked_sub(self.start)? / LOOKUP_BLOCK_SIZE;
        let block = usize::try_from(block).ok()?;
        let first = *self.slots.get(block)? as usize;
        let last = *self.slots.get(block.checked_add(1)?)? as usize;
        let end = last.checked_add(1).filter(|end| *end <= table.len())?;
        table.find_in(svma, first..end)
    }
}

#[cfg(test)]
mod tests;
