//! Reads a section in place: finds the function of an address, and its rows.
//!
//! Which rows a particular reader accepts is in `profile`.

use super::fde::{self, Fde};
use super::fre::Fres;
use super::header::{FLAG_FDE_SORTED, Header, Malformed, Version};
use super::row::SframeRow;
use crate::rule::Rule;
use alloc::vec::Vec;

/// A `.sframe` section: its header, bytes and address.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    header: Header,
    bytes: &'a [u8],
    address: u64,
}

/// A row of a function, ready to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableRow {
    /// Offset of the row in the section; that of the FDE for the implicit row of an FDE without
    /// rows.
    pub offset: u64,
    /// Offset from the start of the function or of the repeated block, bytes.
    pub start: u32,
    /// The row; `None` for the implicit row of an FDE without rows, which marks an outermost frame.
    pub row: Option<SframeRow>,
    /// The row as a rule.
    pub rule: Rule,
}

impl<'a> Table<'a> {
    /// The section in these bytes (any of the three versions), loaded at `address` (svma).
    pub fn parse(bytes: &'a [u8], address: u64) -> Result<Table<'a>, Malformed> {
        let header = Header::parse(bytes)?;
        Ok(Self::with_header(header, bytes, address))
    }

    /// Like [`Table::parse`], with a header already parsed from the same bytes.
    pub(crate) const fn with_header(header: Header, bytes: &'a [u8], address: u64) -> Self {
        Table {
            header,
            bytes,
            address,
        }
    }

    /// The section's header, checked against its length.
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// The section's address (svma).
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// The bytes after the table: zeros, or the second table from a linker that concatenates them.
    pub fn tail(&self) -> &'a [u8] {
        let end = self.header.fdes_end().max(self.header.fres_end());
        usize::try_from(end).map_or(&[], |end| self.bytes.get(end..).unwrap_or(&[]))
    }

    /// What is behind the table, unless it is only zeros. No reader finds it.
    pub fn behind(&self) -> Option<Malformed> {
        let tail = self.tail();
        let offset = (self.bytes.len() - tail.len()) as u64;
        let what = "bytes after the table, as in concatenated sections; no reader finds them";
        let is_padding = tail.iter().all(|&byte| byte == 0);
        (!is_padding).then_some(Malformed::new(offset, what))
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

    /// The function that contains `svma`, by binary search of a sorted table. An unsorted table
    /// needs `order`.
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

    /// The last function of a sorted table that starts at or before `svma`.
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

    /// The order for searching an unsorted table; `None` if the table claims to be sorted.
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

    /// The decoded rows of a function; ends after the first error. A V3 function without rows has
    /// one implicit row that marks an outermost frame (in a flexible function this is an error).
    pub fn rows(&self, fde: &Fde) -> impl Iterator<Item = Result<TableRow, Malformed>> + use<'a> {
        // Copied, so that the iterator does not borrow the FDE.
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

        // The error itself is given, too; only what follows it is cut off.
        let rows = rows.take_while(move |row| !core::mem::replace(&mut failed, row.is_err()));

        // Only V3 gives a meaning to a function without rows; the older versions say nothing there.
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

/// The functions of an unsorted table, by address. If several have the same address, the last one
/// wins, as in a binary search of a sorted table.
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
