//! What a table stores for a row, byte by byte.

use crate::image::{Image, SectionKind};
use crate::orc::{ENTRY_LEN, Entry, Layout};
use crate::row::{Row, TableKind};
use crate::{dwarf, sframe};
use alloc::vec::Vec;

/// The bytes of a row of `image`, all of them and none of its neighbours': the CFI instructions from one advance
/// to the next (for the first row those of the CIE, and those in front of the first advance), an FRE, or an
/// ORC entry. Of a derived row it is what its format would store: SFrame version 3, or the ORC of Linux 7.1.
///
/// `None` if no table has the row, or if the table is malformed there.
pub fn row_bytes(image: &Image, row: &Row) -> Option<Vec<u8>> {
    match row.source.table {
        TableKind::FramePointer => None,
        TableKind::EhFrame | TableKind::DebugFrame => dwarf::row_bytes(image, &row.source),
        TableKind::Sframe => sframe::row_bytes(image, &row.source),
        TableKind::SframeDerived => sframe::derived_bytes(image, row),
        TableKind::Orc => {
            let section = image.section(SectionKind::OrcUnwind)?;
            let start = usize::try_from(row.source.row_offset).ok()?;
            let bytes = section.data.get(start..start.checked_add(ENTRY_LEN)?)?;
            Some(bytes.to_vec())
        }
        TableKind::OrcDerived => {
            let entry = Entry::from_rule(&row.rule).ok()?;
            Some(entry.encode(Layout::V7_1).to_vec())
        }
    }
}
