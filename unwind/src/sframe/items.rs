//! The bytes of a row: an FRE of the section, or one that a derived row would be.

use super::fde::FreType;
use super::read::Table;
use super::row::SframeRow;
use crate::dwarf;
use crate::image::{Image, SectionKind};
use crate::row::{Row, RowSource};
use alloc::vec::Vec;

/// The FRE of a row in the section.
pub(crate) fn row_bytes(image: &Image, source: &RowSource) -> Option<Vec<u8>> {
    let section = image.section(SectionKind::Sframe)?;
    let table = Table::parse(&section.data, section.address).ok()?;
    let mut fdes = table.fdes().flatten();
    let fde = fdes.find(|fde| fde.offset == source.unit_offset)?;

    let mut fres = table.fres(&fde);
    while let Some(Ok(fre)) = fres.next() {
        if fre.offset == source.row_offset {
            let range = fre.offset as usize..fres.offset() as usize;
            return section.data.get(range).map(<[u8]>::to_vec);
        }
    }
    None
}

/// The FRE that says what a row does that was derived from `.eh_frame`.
pub(crate) fn derived_bytes(image: &Image, row: &Row) -> Option<Vec<u8>> {
    let function = dwarf::unit_range(image, row.source.unit_offset)?;
    let size = u32::try_from(function.end - function.start).ok()?;
    let start = row.source.start.checked_sub(function.start)?;
    let start_len = FreType::for_size(size).byte_len() as usize;

    let fre = SframeRow::from_rule(&row.rule).ok()?;
    let (info, words) = fre.encode(!fre.is_default());
    let mut bytes = start.to_le_bytes()[..start_len].to_vec();
    bytes.push(info);
    bytes.extend_from_slice(&words);
    Some(bytes)
}
