//! Units and their rows. A unit is what a table compiles at once, usually the rows of one function.

use crate::image::ImageId;
use crate::row::TableKind;
use crate::rule::Rule;
use core::hash::{BuildHasher, Hash, Hasher};
use core::ops::Range;

/// The index of a compiled row in its cache.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RowId(pub(super) u32);

impl RowId {
    /// No row's id.
    pub(crate) const NONE: RowId = RowId(u32::MAX);

    /// The row's index.
    #[inline]
    pub(crate) const fn index(self) -> u32 {
        self.0
    }

    /// A row outside the cache's own rows.
    #[cfg(feature = "kernel")]
    pub(crate) const fn new(index: u32) -> RowId {
        RowId(index)
    }
}

/// The index of a compiled unit in its cache.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UnitId(pub(super) u32);

/// The identity of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnitKey {
    /// The kind of table.
    pub table: TableKind,
    /// The image; `None` for rules that belong to no image.
    pub image: Option<ImageId>,
    /// Offset of the unit in the section, bytes.
    pub offset: u64,
    /// The number of the block, for a function whose rows repeat for each block of its code;
    /// otherwise 0.
    pub block: u32,
}

impl UnitKey {
    /// A hash that puts units that are close in their section close in memory, because tables are
    /// compiled in their order. `seeded` is used for the blocks of functions whose rows repeat.
    ///
    /// Input cannot make many units collide. In a table of `n` places, two units of a section share
    /// a place only if their offsets differ by less than 16 or by nearly a multiple of 16 * `n`. So
    /// all searches together take no more steps than the sections have bytes. That does not hold
    /// for blocks, which take no bytes.
    #[inline]
    pub(super) fn hash_by_place(&self, seeded: &impl BuildHasher) -> u64 {
        const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
        /// The bits that tell units with the same place apart (7 in hashbrown).
        const TAG: u64 = 0xff << 56;
        if self.block != 0 {
            return seeded.hash_one(self);
        }
        let image = self.image.map_or(0, ImageId::number) as u64;
        let table = image << 8 | self.table as u64;
        let place = (self.offset >> 4).wrapping_add(table.wrapping_mul(MIX) >> 20);
        place & !TAG | self.offset.wrapping_mul(MIX) & TAG
    }
}

impl Hash for UnitKey {
    /// Two words instead of one for each field.
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.offset ^ u64::from(self.block) << 32);
        let image = self.image.map_or(0, ImageId::number) as u64;
        state.write_u64(image << 8 ^ self.table as u64);
    }
}

/// A row to be added to the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewRow {
    /// First address (svma). The starts of a unit's rows are strictly increasing.
    pub start: u64,
    /// Offset in the section of the item that made the row, bytes.
    pub offset: u64,
    /// The rule from `start` to the next row or the end of the unit.
    pub rule: Rule,
}

/// One row of a unit, to be compiled without the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SingleRow {
    /// An address (svma) in the row.
    pub(crate) svma: u64,
    /// The unit that holds the row compiled before.
    pub(crate) first: Option<UnitId>,
}

impl SingleRow {
    /// The first part of a new unit.
    pub(crate) const fn first(svma: u64) -> SingleRow {
        SingleRow { svma, first: None }
    }
}

/// A compiled unit.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) key: UnitKey,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) rows: Range<u32>,
    /// The addresses that `rows` cover: all, or those of one row (`UnitBuilder::finish_part`).
    pub(super) known: Range<u64>,
    /// Whether another unit with the same key holds a row found before.
    pub(super) second: bool,
}

/// A compiled row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// Bytes from the unit's start.
    pub(super) start: u32,
    /// Bytes from the unit's offset, modulo 2^32.
    pub(super) offset: u32,
    /// The rule's id in [`super::rules::Rules`].
    pub(super) rule: u32,
    /// The [`UnitId`] of the row's unit.
    pub(super) unit: u32,
}
