//! The entries of a section of call frame information, in stored order.
//!
//! Sources: DWARF 5, section 7.24; LSB 5.0 Core, "Exception Frames". gimli reads what is in an
//! entry; here it is only found, because gimli hides the words that readelf prints.

use crate::dump::DumpError;

/// A length, and what follows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CfiEntry {
    /// Offset in the section, bytes.
    pub(super) offset: usize,
    /// The stored length, bytes.
    pub(super) length: u64,
    /// The stored CIE id or pointer; in a 64-bit `.debug_frame` entry, all 64 bits.
    pub(super) id: u64,
    /// Whether the length has 64 bits.
    pub(super) is_wide: bool,
    /// Whether the id has 64 bits.
    pub(super) has_wide_id: bool,
    /// The offset after the entry.
    pub(super) end: usize,
    /// Whether it is a CIE.
    pub(super) is_cie: bool,
}

/// What is at an offset.
pub(super) enum Item {
    /// A CIE or FDE.
    Entry(CfiEntry),
    /// A length of zero.
    Terminator,
}

fn word<const N: usize>(data: &[u8], at: usize) -> Result<[u8; N], DumpError> {
    let bytes = data.get(at..).and_then(<[u8]>::first_chunk);
    bytes
        .copied()
        .ok_or(DumpError::Reader("the section is cut short"))
}

/// Reads the item at `offset`. `is_eh_frame` distinguishes `.eh_frame` from `.debug_frame`.
pub(super) fn read(data: &[u8], offset: usize, is_eh_frame: bool) -> Result<Item, DumpError> {
    let length = u32::from_le_bytes(word(data, offset)?);
    // DWARF 5, section 7.4: the two forms of a length. A length of 0 ends `.eh_frame` (LSB 5.0
    // Core).
    let (length, is_wide, start) = match length {
        0 => return Ok(Item::Terminator),
        u32::MAX => (
            u64::from_le_bytes(word(data, offset + 4)?),
            true,
            offset + 12,
        ),
        0xffff_fff0.. => return Err(DumpError::Reader("reserved entry length")),
        length => (u64::from(length), false, offset + 4),
    };

    // The length is the file's claim, so the end is computed without overflow and compared with the
    // section.
    let end = usize::try_from(length).ok();
    let end = end.and_then(|length| start.checked_add(length));
    let end = end.filter(|&end| end <= data.len());
    let end = end.ok_or(DumpError::Reader("the entry is longer than its section"))?;

    // In .eh_frame the word has 32 bits even if the length has 64.
    let has_wide_id = is_wide && !is_eh_frame;
    let id = if has_wide_id {
        u64::from_le_bytes(word(data, start)?)
    } else {
        u32::from_le_bytes(word(data, start)?).into()
    };

    // A CIE has 0 in place of a pointer in `.eh_frame`, and all ones in `.debug_frame`.
    let cie = match (is_eh_frame, has_wide_id) {
        (true, _) => 0,
        (false, true) => u64::MAX,
        (false, false) => u32::MAX.into(),
    };

    Ok(Item::Entry(CfiEntry {
        offset,
        length,
        id,
        is_wide,
        has_wide_id,
        end,
        is_cie: id == cie,
    }))
}

impl CfiEntry {
    /// The offset of the version of a CIE.
    pub(super) fn version_at(&self) -> usize {
        let header = if self.is_wide { 12 } else { 4 };
        let id = if self.has_wide_id { 8 } else { 4 };
        self.offset + header + id
    }

    /// The augmentation string of a CIE: what follows the id and the version, up to NUL.
    pub(super) fn augmentation<'a>(&self, data: &'a [u8]) -> &'a [u8] {
        let start = self.version_at() + 1;
        let rest = data.get(start..self.end).unwrap_or_default();
        let end = rest.iter().position(|&byte| byte == 0);
        &rest[..end.unwrap_or(rest.len())]
    }
}
