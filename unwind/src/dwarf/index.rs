//! Finds the FDE that covers an address: with the sorted table of `.eh_frame_hdr` (LSB 5.0 Core,
//! "Exception Frame Header"), or with an index built once from the section itself.

use super::read::{Cie, EntryHeader, Table};
use crate::image::{Image, SectionKind};
use crate::reason::Reason;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Range;

/// One FDE of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unit {
    /// The addresses (svma) that the FDE covers.
    pub range: Range<u64>,
    /// Offset of the FDE in the section, bytes.
    pub offset: u64,
    /// The address (svma) of its language-specific data, such as a C++ function's call sites.
    pub lsda: Option<u64>,
}

/// The FDEs of a table in section order, read only up to their headers. An entry with a malformed
/// length ends the iteration.
#[derive(Clone)]
pub(super) struct Entries<'a> {
    table: Table<'a>,
    at: usize,
    error: Option<Reason>,
}

impl<'a> Entries<'a> {
    pub(super) fn new(table: Table<'a>) -> Entries<'a> {
        Entries {
            table,
            at: 0,
            error: None,
        }
    }

    /// Why the iteration ended early. Kept apart from the entries, so that these stay in registers.
    pub(super) fn error(&mut self) -> Option<Reason> {
        self.error.take()
    }

    /// Like [`Iterator::next`], for an entry that is a CIE or has another length than 4 bytes.
    #[inline(never)]
    fn next_any(&mut self) -> Option<EntryHeader<'a>> {
        while self.at < self.table.data.len() {
            match self.table.entry(self.at) {
                Ok(Some(entry)) => {
                    self.at = entry.end;
                    if !entry.is_cie() {
                        return Some(entry);
                    }
                }
                // A terminator. The linker also leaves those of its inputs in the middle.
                Ok(None) => self.at += 4,
                Err(reason) => {
                    self.at = self.table.data.len();
                    self.error = Some(reason);
                }
            }
        }
        None
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = EntryHeader<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        match self.table.usual_entry(self.at) {
            Some(entry) => {
                self.at = entry.end;
                Some(entry)
            }
            None => self.next_any(),
        }
    }
}

/// The FDEs of a table in section order. A malformed FDE yields an error, and iteration continues
/// with the next; an entry with a malformed length is the last.
pub struct Units<'a> {
    table: Option<(Table<'a>, Entries<'a>)>,
    /// The CIE read last.
    cie: Option<Cie>,
}

impl<'a> Units<'a> {
    pub(super) fn new(table: Option<Table<'a>>) -> Units<'a> {
        Units {
            table: table.map(|t| (t, Entries::new(t))),
            cie: None,
        }
    }
}

impl Iterator for Units<'_> {
    type Item = Result<Unit, Reason>;

    fn next(&mut self) -> Option<Self::Item> {
        let (table, entries) = self.table.as_mut()?;
        let Some(entry) = entries.next() else {
            return entries.error().map(Err);
        };
        let unit = table.cie_of(&entry).and_then(|at| {
            let cie = match self.cie.take() {
                Some(cie) if cie.offset == at => cie,
                _ => table.cie(at)?,
            };
            let cie = self.cie.insert(cie);
            let fde = table.fde(entry, cie)?;
            Ok(Unit {
                lsda: table.lsda(&fde, cie),
                range: fde.range,
                offset: fde.offset as u64,
            })
        });
        Some(unit)
    }
}

/// The FDEs of a section, sorted by address.
#[derive(Debug)]
pub(super) struct Sorted {
    units: Vec<Unit>,
    /// The first error. An address that no FDE covers may have been covered there.
    error: Option<Reason>,
}

impl Sorted {
    pub(super) fn new(units: Units<'_>) -> Sorted {
        let mut error = None;
        let mut sorted: Vec<Unit> = units
            .filter_map(|unit| unit.map_err(|e| error.get_or_insert(e).code()).ok())
            .filter(|unit| !unit.range.is_empty())
            .collect();
        sorted.sort_by_key(|unit| (unit.range.start, unit.offset));
        Sorted {
            units: sorted,
            error,
        }
    }

    /// The offset of the FDE that covers `svma`.
    pub(super) fn find(&self, svma: u64) -> Result<u64, Reason> {
        let after = self.units.partition_point(|u| u.range.start <= svma);
        let unit = after.checked_sub(1).map(|i| &self.units[i]);
        match unit.filter(|u| u.range.contains(&svma)) {
            Some(unit) => Ok(unit.offset),
            None => Err(self.error.unwrap_or(Reason::NoRow { pc: svma })),
        }
    }
}

/// `.eh_frame_hdr` with its usual table: pairs of 32-bit offsets relative to the section's start.
pub(super) struct Header<'a> {
    pairs: &'a [[u8; 8]],
    /// The section's address (svma).
    address: u64,
    /// The address (svma) of `.eh_frame`.
    eh_frame: u64,
}

/// The header that every linker writes: version 1, a pointer of 4 bytes (relative to itself or to
/// the section), a count of 4 bytes, a table of signed 4-byte offsets relative to the section.
const FORMATS: [[u8; 4]; 2] = [[1, 0x1b, 0x03, 0x3b], [1, 0x3b, 0x03, 0x3b]];
const HEADER_SIZE: usize = 12;

impl<'a> Header<'a> {
    /// The header of `image`, if there is one in the usual format with a complete table.
    pub(super) fn of(image: &'a Image, eh_frame: &Table<'_>) -> Option<Header<'a>> {
        let section = image.section(SectionKind::EhFrameHdr)?;
        let bytes: &[u8] = &section.data;
        let format = bytes.first_chunk::<4>()?;
        if !FORMATS.contains(format) {
            return None;
        }
        let (head, table) = bytes.split_at_checked(HEADER_SIZE)?;
        let count = u32::from_le_bytes(*head.last_chunk()?) as usize;
        let (pairs, _) = table.as_chunks::<8>();
        Some(Header {
            pairs: pairs.get(..count)?,
            address: section.address,
            eh_frame: eh_frame.address,
        })
    }

    /// The number of functions in the table.
    pub(super) fn len(&self) -> usize {
        self.pairs.len()
    }

    /// The offset in `.eh_frame` of the only FDE that may cover `svma`.
    pub(super) fn find(&self, svma: u64) -> Option<u64> {
        let target = svma.wrapping_sub(self.address).cast_signed();
        let pair = &self.pairs[self.after(target).checked_sub(1)?];
        let fde = self.address.wrapping_add_signed(word(pair, 4));
        Some(fde.wrapping_sub(self.eh_frame))
    }

    /// The number of functions that start at or before `target`. Uses branches, so that a processor
    /// can speculate and fetch the next pair early; `partition_point` would make it wait.
    fn after(&self, target: i64) -> usize {
        let (mut low, mut high) = (0, self.pairs.len());
        while low < high {
            let middle = low.midpoint(high);
            match word(&self.pairs[middle], 0).cmp(&target) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => {
                    let rest = &self.pairs[middle..high];
                    return middle + rest.partition_point(|pair| word(pair, 0) <= target);
                }
                Ordering::Greater => high = middle,
            }
        }
        low
    }
}

/// The signed word at byte `at` of a pair.
fn word(pair: &[u8; 8], at: usize) -> i64 {
    i32::from_le_bytes([pair[at], pair[at + 1], pair[at + 2], pair[at + 3]]).into()
}
