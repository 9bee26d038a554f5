//! The rule and the source of a compiled row.

use super::Version;
use super::rules::Rules;
use super::unit::{Row, RowId, Unit};
use crate::row::RowSource;
use crate::rule::Rule;

/// A view of a cache's rows, which leaves its hot table free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sources<'a> {
    pub(super) rules: &'a Rules,
    pub(super) rows: &'a [Row],
    pub(super) units: &'a [Unit],
    pub(crate) version: Version,
}

impl<'a> Sources<'a> {
    /// The rule of `row`.
    #[inline]
    pub(crate) fn rule(self, row: RowId) -> &'a Rule {
        self.rules.get(self.rows[row.0 as usize].rule)
    }

    /// The source of `row`.
    #[inline]
    pub(crate) fn source(self, row: RowId) -> RowSource {
        let r = self.rows[row.0 as usize];
        let unit = &self.units[r.unit as usize];
        RowSource {
            table: unit.key.table,
            image: unit.key.image,
            unit_offset: unit.key.offset,
            row_offset: unit
                .key
                .offset
                .wrapping_add(i64::from(r.offset as i32) as u64),
            start: unit.start + u64::from(r.start),
            end: self.row_end(row, unit),
            fallback: None,
        }
    }

    /// The first address (svma) after `row` of `unit`.
    #[inline]
    fn row_end(self, row: RowId, unit: &Unit) -> u64 {
        let next = row.0 + 1;
        if row.0 < unit.rows.start || next > unit.rows.end {
            return self.former_row_end(row, unit);
        }
        if next < unit.rows.end {
            unit.start + u64::from(self.rows[next as usize].start)
        } else {
            unit.known.end.min(unit.end)
        }
    }

    /// Like [`Sources::row_end`], for a row added while only a part of its unit was known.
    #[cold]
    fn former_row_end(self, row: RowId, unit: &Unit) -> u64 {
        let start = self.rows[row.0 as usize].start;
        let rows = &self.rows[unit.rows.start as usize..unit.rows.end as usize];
        let next = rows.iter().find(|r| r.start > start);
        next.map_or(unit.end, |r| unit.start + u64::from(r.start))
    }
}
