//! The hot table: maps a lookup address in an address space directly to a packed rule.

use super::unit::RowId;
use crate::image::{AddressSpace, Stamp};
use crate::reason::Reason;
use crate::rule::Packed;
use alloc::vec::Vec;
use hashbrown::HashMap;

/// The maximum number of entries in the hot table (24 bytes each).
pub const HOT_ENTRIES_MAX: usize = 1 << 21;

const ENTRIES_MIN: usize = 1 << 9;

/// An entry is found within this many probes or is missing. Input that makes addresses collide
/// costs this much time at most, whatever the size of the table.
const PROBES_MAX: usize = 16;

/// The rule of an address: 24 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hot {
    key: u64,
    pub(crate) row: RowId,
    /// The index of the caller's entry the last time. Only a guess: the caller may be another one
    /// now, and the table may have grown.
    next: u32,
    pub(crate) packed: Packed,
}

const _: () = assert!(size_of::<Hot>() == 24);

/// The index of no entry.
const NO_PLACE: u32 = u32::MAX;

const EMPTY: u64 = u64::MAX;

/// Whether the top 17 bits are equal, as in every address that an x86-64 processor can use. Only
/// such addresses are remembered: their keys have room for the number of the address space.
#[inline]
const fn is_canonical(address: u64) -> bool {
    ((address << 16).cast_signed() >> 16).cast_unsigned() == address
}

impl Hot {
    const NONE: Hot = Hot {
        key: EMPTY,
        row: RowId(0),
        next: NO_PLACE,
        packed: Packed::GENERIC,
    };
}

/// The index where a key's probes start. Fibonacci hashing: the high bits of the product.
#[inline]
fn home(key: u64, shift: u32) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (shift & 63)) as usize
}

/// The entries of the selected space, for a walk from callee to caller.
#[derive(Debug)]
pub(crate) struct Callers<'a> {
    entries: &'a mut [Hot],
    space: u64,
    shift: u32,
    /// The index of the entry found last.
    callee: u32,
}

impl Callers<'_> {
    /// The row and the packed rule for `address`, which is the caller of the one found last. A
    /// function is mostly called from where it was called last time. If it is, its caller's entry
    /// is known before the return address has been read and hashed, so that a processor can run
    /// ahead.
    #[inline(always)]
    pub(crate) fn next(&mut self, address: u64) -> Option<(RowId, Packed)> {
        let callee = self.entries.get(self.callee as usize);
        let guess = callee.map_or(NO_PLACE, |callee| callee.next);
        let (row, packed) = match self.entries.get(guess as usize) {
            Some(hot) if hot.key == address ^ self.space && is_canonical(address) => {
                self.callee = guess;
                (hot.row, hot.packed)
            }
            _ => self.learn(address)?,
        };
        Some((row, packed))
    }

    /// Finds an entry by its address and remembers it as the caller of the one found last.
    #[inline(never)]
    fn learn(&mut self, address: u64) -> Option<(RowId, Packed)> {
        let key = address ^ self.space;
        let home = home(key, self.shift);
        let mask = self.entries.len().checked_sub(1)?;
        let mut places = (0..PROBES_MAX).map(|i| (home + i) & mask);
        let found = places.find(|&at| [key, EMPTY].contains(&self.entries[at].key))?;
        let hot = self.entries[found];
        if hot.key != key || !is_canonical(address) {
            return None;
        }
        if let Some(callee) = self.entries.get_mut(self.callee as usize) {
            callee.next = found as u32;
        }
        self.callee = found as u32;
        Some((hot.row, hot.packed))
    }
}

/// An open-addressing hash table, at most half full.
#[derive(Debug, Default)]
pub(crate) struct HotTable {
    entries: Vec<Hot>,
    used: usize,
    /// 64 - log2 of the number of entries.
    shift: u32,
    /// The number of each address space, by its stamp.
    spaces: HashMap<Stamp, u64>,
    /// The stamp of the selected space.
    stamp: Option<Stamp>,
    space: u64,
    /// Why the first table had no rule, for the keys whose rule comes from the fallback.
    fallbacks: HashMap<u64, Reason>,
}

impl HotTable {
    /// An empty table for the addresses of one space, which need not be selected.
    #[cfg(feature = "kernel")]
    pub(crate) fn of_one_space() -> HotTable {
        HotTable {
            space: 1 << 48,
            ..HotTable::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.used
    }

    /// Heap bytes.
    pub(super) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Hot>()
            + self.spaces.allocation_size()
            + self.fallbacks.allocation_size()
    }

    /// Selects the space of the keys used from here on.
    #[inline]
    pub(super) fn select(&mut self, space: &AddressSpace) {
        let stamp = space.stamp();
        if self.stamp != Some(stamp) {
            self.select_slow(stamp);
        }
    }

    #[cold]
    fn select_slow(&mut self, stamp: Stamp) {
        // Numbers range from 1 to below 0x8000. So no key equals EMPTY, and the key of an
        // upper-half address (whose top bits are set) never equals that of a lower-half one in
        // another space.
        const SPACES_MAX: usize = 0x7ffe;
        let known = self.spaces.get(&stamp).copied();
        let number = known.unwrap_or_else(|| {
            // An older stamp of the same space never comes back. Its number is not reused, because
            // the table still has entries with it.
            if self.spaces.len() >= SPACES_MAX {
                self.clear();
            }
            let next = self.spaces.len() as u64 + 1;
            self.spaces.insert(stamp, next);
            next
        });
        self.stamp = Some(stamp);
        self.space = number << 48;
        if self.entries.is_empty() {
            self.resize(ENTRIES_MIN);
        }
    }

    fn clear(&mut self) {
        self.spaces.clear();
        self.entries.fill(Hot::NONE);
        self.fallbacks.clear();
        self.used = 0;
    }

    /// Replaces the entries with `len` (a power of two) empty ones; returns the old entries.
    fn resize(&mut self, len: usize) -> Vec<Hot> {
        self.shift = 64 - len.trailing_zeros();
        core::mem::replace(&mut self.entries, alloc::vec![Hot::NONE; len])
    }

    #[inline]
    fn key(&self, address: u64) -> u64 {
        address ^ self.space
    }

    /// The index where a key's probes start.
    #[inline]
    fn home(&self, key: u64) -> usize {
        home(key, self.shift)
    }

    /// The rule for `address`, if it was looked up before.
    #[inline(always)]
    pub(crate) fn get(&self, address: u64) -> Option<&Hot> {
        let key = self.key(address);
        let home = self.home(key);
        let entry = self.entries.get(home)?;
        let entry = match entry.key {
            found if found == key => entry,
            EMPTY => return None,
            _ => self.probe(key, home)?,
        };
        is_canonical(address).then_some(entry)
    }

    /// The view for a walk from callee to caller.
    #[inline]
    pub(crate) fn callers(&mut self) -> Callers<'_> {
        Callers {
            space: self.space,
            shift: self.shift,
            entries: &mut self.entries,
            callee: NO_PLACE,
        }
    }

    #[inline(never)]
    fn probe(&self, key: u64, home: usize) -> Option<&Hot> {
        let mask = self.entries.len() - 1;
        for i in 1..PROBES_MAX {
            let entry = &self.entries[(home + i) & mask];
            if entry.key == key {
                return Some(entry);
            }
            if entry.key == EMPTY {
                return None;
            }
        }
        None
    }

    /// Remembers that `row` covers `address`.
    pub(crate) fn insert(
        &mut self,
        address: u64,
        row: RowId,
        packed: Packed,
        fallback: Option<Reason>,
    ) -> Hot {
        // At most half full, so that probes are short.
        if self.used * 2 >= self.entries.len() {
            self.grow();
        }

        let key = self.key(address);
        let hot = Hot {
            key,
            row,
            next: NO_PLACE,
            packed,
        };

        // The key of another address could be that of an address in another space.
        if is_canonical(address) {
            if let Some(cause) = fallback {
                self.fallbacks.insert(key, cause);
            }
            self.place(hot);
            self.used += 1;
        }

        hot
    }

    /// Why the first table had no rule at `address`, if the fallback's rule is used.
    #[inline]
    pub(super) fn fallback(&self, address: u64) -> Option<Reason> {
        if self.fallbacks.is_empty() {
            return None;
        }
        self.fallbacks.get(&self.key(address)).copied()
    }

    /// Stores `hot` in the first free place, or over the entry at its home if none is near.
    fn place(&mut self, hot: Hot) {
        let (mask, home) = (self.entries.len() - 1, self.home(hot.key));
        let mut places = (0..PROBES_MAX).map(|i| (home + i) & mask);
        let free = places.find(|&at| self.entries[at].key == EMPTY);
        self.entries[free.unwrap_or(home)] = hot;
    }

    #[cold]
    fn grow(&mut self) {
        if self.entries.len() >= HOT_ENTRIES_MAX {
            self.clear();
            self.spaces.extend(self.stamp.map(|stamp| (stamp, 1)));
            self.space = 1 << 48;
            return;
        }
        let old = self.resize((self.entries.len() * 2).max(ENTRIES_MIN));
        for hot in old.into_iter().filter(|h| h.key != EMPTY) {
            self.place(hot);
        }
    }
}

#[cfg(test)]
mod tests;
