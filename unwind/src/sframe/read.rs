//! The section: finds the function of an address, and its rows. Reads in place.
//!
//! Not here: when a row may be used, and what else a reader may ask of a section (`profile`).

use super::fde::{self, Fde};
use super::fre::Fres;
use super::header::{FLAG_FDE_SORTED, Header, Malformed, Version};
use super::row::SframeRow;
use crate::rule::Rule;
use alloc::vec::Vec;

/// A `.sframe` section: its header, its bytes, its address.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    header: Header,
    bytes: &'a [u8],
    address: u64,
}

/// A row of a function, ready to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableRow {
    /// Offset in the section of the row; of the FDE, for the one row of an FDE without rows.
    pub offset: u64,
    /// From the start of the function, or of the repeated block, bytes.
    pub start: u32,
    /// The row; `None` for the one of an FDE without rows, which is an outermost frame's.
    pub row: Option<SframeRow>,
    /// What it means.
    pub rule: Rule,
}

impl<'a> Table<'a> {
    /// The section of these bytes (any of the three versions), loaded at `address` (svma).
    pub fn parse(bytes: &'a [u8], address: u64) -> Result<Table<'a>, Malformed> {
        let header = Header::parse(bytes)?;
        Ok(Self::with_header(header, bytes, address))
    }

    /// As [`Table::parse`], with the header that it found in these very bytes.
    pub(crate) const fn with_header(header: Header, bytes: &'a [u8], address: u64) -> Self {
        Table {
            header,
            bytes,
            address,
        }
    }

    /// The header.
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// The section's address (svma).
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// What follows the table in the section; zeros, or the second table of a linker that
    /// concatenates them.
    pub fn tail(&self) -> &'a [u8] {
        let end = self.header.fdes_end().max(self.header.fres_end());
        usize::try_from(end).map_or(&[], |end| self.bytes.get(end..).unwrap_or(&[]))
    }

    /// The function descriptor at `index`; `None` if there are fewer.
    pub fn fde(&self, index: u32) -> Option<Result<Fde, Malformed>> {
        fde::read(&self.header, self.bytes, self.address, index)
    }

    /// All function descriptors, in stored order.
    pub fn fdes(&self) -> impl Iterator<Item = Result<Fde, Malformed>> + use<'a> {
        let table = *self;
        (0..table.header.num_fdes).filter_map(move |i| table.fde(i))
    }

    /// The start address (svma) of function `index`.
    pub fn start(&self, index: u32) -> Option<u64> {
        if index >= self.header.num_fdes {
            return None;
        }
        let offset = self.header.fdes + u64::from(index) * self.header.version.fde_len();
        fde::start(&self.header, self.bytes, self.address, offset)
    }

    /// The function that holds `svma`, by binary search of a sorted table; of an unsorted one,
    /// `order` has to be given.
    pub fn find(&self, svma: u64, order: Option<&Order>) -> Result<Option<Fde>, Malformed> {
        let candidate = match order {
            Some(order) => order.last_at(svma),
            None => self.last_at(svma),
        };
        let Some(index) = candidate else {
            return Ok(None);
        };
        match self.fde(index) {
            Some(Ok(fde)) => Ok(fde.contains(svma).then_some(fde)),
            Some(Err(error)) => Err(error),
            None => Ok(None),
        }
    }

    /// The last function of a sorted table that begins at or before `svma`.
    fn last_at(&self, svma: u64) -> Option<u32> {
        let (mut low, mut high) = (0, self.header.num_fdes);
        while low < high {
            let mid = low + (high - low) / 2;
            if self.start(mid)? <= svma {
                low = mid + 1;
            } else {
                high = mid;
            }
        }
        low.checked_sub(1)
    }

    /// The order to search an unsorted table in; `None` if the table says that it is sorted.
    pub fn order(&self) -> Option<Order> {
        if self.header.has(FLAG_FDE_SORTED) {
            return None;
        }
        let starts = (0..self.header.num_fdes).filter_map(|i| Some((self.start(i)?, i)));
        let mut order: Vec<_> = starts.collect();
        order.sort_unstable();
        Some(Order(order))
    }

    /// The stored rows of a function.
    pub fn fres(&self, fde: &Fde) -> Fres<'a> {
        Fres::new(&self.header, self.bytes, fde)
    }

    /// The rows of a function, decoded; ends after the first error. A V3 function without rows
    /// has one, which says that it is an outermost frame (unless it is a flexible one: an error).
    pub fn rows(&self, fde: &Fde) -> impl Iterator<Item = Result<TableRow, Malformed>> + use<'a> {
        let (header, fde) = (self.header, *fde);
        let mut failed = false;
        let rows = self.fres(&fde).map(move |fre| {
            let fre = fre?;
            let row = SframeRow::decode(&header, &fde, &fre)?;
            Ok(TableRow {
                offset: fre.offset,
                start: fre.start,
                row: Some(row),
                rule: row.rule(&header, fde.signal),
            })
        });
        let rows = rows.take_while(move |row| !core::mem::replace(&mut failed, row.is_err()));
        let outermost = match (fde.num_fres, header.version) {
            (0, Version::V3) if fde.flex => Some(Err(Malformed::new(
                fde.offset,
                "a flexible FDE without rows",
            ))),
            (0, Version::V3) => Some(Ok(TableRow {
                offset: fde.offset,
                start: 0,
                row: None,
                rule: Rule::OUTERMOST,
            })),
            _ => None,
        };
        outermost.into_iter().chain(rows)
    }
}

/// The functions of an unsorted table, by address. Of several at one address the last wins, as
/// a binary search of the sorted table would have it.
#[derive(Clone, Debug)]
pub struct Order(Vec<(u64, u32)>);

impl Order {
    fn last_at(&self, svma: u64) -> Option<u32> {
        let after = self.0.partition_point(|&(start, _)| start <= svma);
        Some(self.0[after.checked_sub(1)?].1)
    }
}

#[cfg(test)]
mod tests;
