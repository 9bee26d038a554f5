//! The rows of a chain, each stored once.

use crate::cache::{RowId, Sources, Version};
use crate::row::{Row, RowSource};
use crate::rule::Rule;
use alloc::vec::Vec;
use core::fmt;

/// With more rows than this, a chain does not keep them for the next walk (184 bytes each).
const KEPT_MAX: usize = 1 << 12;

/// A row is found within this many probes or stored once more. Input that makes rows collide costs
/// this much time at most, whatever the number of rows.
const PROBES_MAX: usize = 16;

/// The length of the table when the first row is added.
const KNOWN_MIN: usize = 1 << 5;

/// The row by which a frame was found: its rule and where it comes from.
#[derive(Clone, Copy)]
pub struct RowRef<'a>(RowStorage<'a>);

#[derive(Clone, Copy)]
enum RowStorage<'a> {
    /// A row of a walk's cache, not copied yet.
    Cached(&'a Sources<'a>, RowId),
    Own(&'a Row),
}

impl<'a> RowRef<'a> {
    #[inline(always)]
    pub(crate) fn cached(sources: &'a Sources<'a>, row: RowId) -> RowRef<'a> {
        RowRef(RowStorage::Cached(sources, row))
    }

    /// The rule that found the frame.
    pub fn rule(self) -> &'a Rule {
        match self.0 {
            RowStorage::Cached(sources, row) => sources.rule(row),
            RowStorage::Own(row) => &row.rule,
        }
    }

    /// The table and row that the rule came from.
    pub fn source(self) -> RowSource {
        match self.0 {
            RowStorage::Cached(sources, row) => sources.source(row),
            RowStorage::Own(row) => row.source,
        }
    }

    /// The rule and its source, copied.
    pub fn row(self) -> Row {
        Row {
            rule: *self.rule(),
            source: self.source(),
        }
    }
}

impl<'a> From<&'a Row> for RowRef<'a> {
    fn from(row: &'a Row) -> Self {
        RowRef(RowStorage::Own(row))
    }
}

impl PartialEq for RowRef<'_> {
    fn eq(&self, other: &RowRef<'_>) -> bool {
        self.source() == other.source() && self.rule() == other.rule()
    }
}

impl Eq for RowRef<'_> {}

impl fmt::Debug for RowRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.row().fmt(f)
    }
}

/// A row of a cache that a chain has.
#[derive(Clone, Copy, Debug)]
struct StoredRow {
    id: RowId,
    place: u32,
}

const UNKNOWN: StoredRow = StoredRow {
    id: RowId::NONE,
    place: u32::MAX,
};

/// Rows, and where those of one cache are.
#[derive(Clone, Default, Debug)]
pub(super) struct Rows {
    rows: Vec<Row>,
    /// The state of the cache whose rows are known.
    version: Option<Version>,
    /// An open-addressing hash table by id, at most half full.
    known: Vec<StoredRow>,
    /// 32 - log2 of its length.
    shift: u32,
    used: usize,
}

impl Rows {
    /// The row at `place`, if there is one.
    pub(super) fn get(&self, place: u32) -> Option<RowRef<'_>> {
        self.rows.get(place as usize).map(RowRef::from)
    }

    /// Makes ready for another walk, which is likely to find the same rows.
    pub(super) fn start_anew(&mut self) {
        if self.rows.len() > KEPT_MAX {
            *self = Rows::default();
        } else if self.rows.len() > self.used {
            self.rows.clear();
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.known.fill(UNKNOWN);
        self.used = 0;
    }

    /// The place of `row`, which is added if it is new.
    #[inline(always)]
    pub(super) fn place(&mut self, row: RowRef<'_>) -> u32 {
        match row.0 {
            RowStorage::Cached(sources, id) => match self.known.get(self.home(id)) {
                Some(known) if known.id == id && self.version == Some(sources.version) => {
                    known.place
                }
                _ => self.find_or_add(sources, id),
            },
            RowStorage::Own(row) => self.add_own(row),
        }
    }

    /// The index where an id's probes start. Fibonacci hashing: the high bits of the product.
    #[inline(always)]
    fn home(&self, id: RowId) -> usize {
        (id.index().wrapping_mul(0x9e37_79b9) >> (self.shift & 31)) as usize
    }

    /// The first index, in the order of probes, that has `id` or is free; the first of all if none
    /// near has.
    fn probe(&self, id: RowId) -> usize {
        let (mask, home) = (self.known.len() - 1, self.home(id));
        let mut places = (0..PROBES_MAX).map(|i| (home + i) & mask);
        let fits = |&at: &usize| [id, RowId::NONE].contains(&self.known[at].id);
        places.find(fits).unwrap_or(home)
    }

    fn grow(&mut self) {
        let len = (self.known.len() * 2).max(KNOWN_MIN);
        self.shift = 32 - len.trailing_zeros();
        let old = core::mem::replace(&mut self.known, alloc::vec![UNKNOWN; len]);
        for known in old.into_iter().filter(|known| known.id != RowId::NONE) {
            let at = self.probe(known.id);
            self.known[at] = known;
        }
    }

    #[inline(never)]
    fn find_or_add(&mut self, sources: &Sources<'_>, id: RowId) -> u32 {
        if self.version != Some(sources.version) {
            self.forget();
            self.version = Some(sources.version);
        }
        if self.used * 2 >= self.known.len() {
            self.grow();
        }
        let at = self.probe(id);
        if self.known[at].id == id {
            return self.known[at].place;
        }
        let place = self.add(RowRef::cached(sources, id).row());
        self.used += usize::from(self.known[at].id == RowId::NONE);
        self.known[at] = StoredRow { id, place };
        place
    }

    /// Adds a row that belongs to no cache. The frames of a walk often share such a row.
    fn add_own(&mut self, row: &Row) -> u32 {
        match self.rows.last() {
            Some(last) if last == row => self.rows.len() as u32 - 1,
            _ => self.add(*row),
        }
    }

    fn add(&mut self, row: Row) -> u32 {
        self.rows.push(row);
        self.rows.len() as u32 - 1
    }
}

#[cfg(test)]
mod tests;
