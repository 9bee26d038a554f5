//! Units and their rows: a unit is what a table compiles as a whole, a function's rows mostly.

use crate::image::ImageId;
use crate::row::TableKind;
use crate::rule::Rule;
use core::ops::Range;

/// The number of a compiled row in its cache.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RowId(pub(super) u32);

/// The number of a compiled unit in its cache.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UnitId(pub(super) u32);

/// What identifies a unit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UnitKey {
    /// Its table.
    pub table: TableKind,
    /// Its image; `None` for rules that belong to no image.
    pub image: Option<ImageId>,
    /// Its offset in the section, bytes.
    pub offset: u64,
    /// For a function whose rows are repeated for each block of its code: the number of the block. 0
    /// for all others.
    pub block: u32,
}

/// A row on its way into the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewRow {
    /// Its first address (svma). Rows of a unit are strictly increasing.
    pub start: u64,
    /// Offset in the section of what made the row, bytes.
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
    /// The addresses that `rows` speak for: all, or those of one row (`UnitBuilder::finish_part`).
    pub(super) known: Range<u64>,
}

/// A compiled row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// Bytes from the unit's start.
    pub(super) start: u32,
    /// Bytes from the unit's offset; wraps as the offsets do.
    pub(super) offset: u32,
    /// The rule's id in [`super::rules::Rules`].
    pub(super) rule: u32,
    /// Its unit's [`UnitId`].
    pub(super) unit: u32,
}
