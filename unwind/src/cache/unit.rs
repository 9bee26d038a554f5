//! Units and their rows. A unit is what a table compiles at once, usually the rows of one function.

use crate::image::ImageId;
use crate::row::TableKind;
use crate::rule::Rule;
use core::hash::{Hash, Hasher};
use core::ops::Range;

/// The index of a compiled row in its cache.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RowId(pub(super) u32);

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
    /// The rule.
    pub rule: Rule,
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
