//! What is kept of an image's table after it was first read: its layout and its order.

use super::detect::detect;
use super::layout::Encoding;
use super::read::{Malformed, Sorted, Table};
use crate::image::{Image, Section, SectionKind};
use alloc::vec::Vec;
use core::ops::Range;

/// An image's table, ready for searching.
#[derive(Clone, Debug)]
pub struct Index {
    entries: Section,
    ips: Section,
    encoding: Option<Encoding>,
    order: Option<Vec<u32>>,
    text: Range<u64>,
}

impl Index {
    /// The table of `image` in the encoding `told`, otherwise in the one detected; `None` if the
    /// image has no table.
    ///
    /// # Errors
    /// If its sections do not fit together.
    pub fn new(image: &Image, told: Option<Encoding>) -> Result<Option<Index>, Malformed> {
        let entries = image.section(SectionKind::OrcUnwind);
        let (Some(entries), Some(ips)) = (entries, image.section(SectionKind::OrcUnwindIp)) else {
            return Ok(None);
        };
        let table = Table::new(&entries.data, &ips.data, ips.address)?;
        let encoding = told.or_else(|| detect(image, &table));
        let order = encoding.and_then(|e| table.order(e.layout));
        let text = image.text();
        let end = text.iter().map(|r| r.end).max();
        Ok(Some(Index {
            entries: entries.clone(),
            ips: ips.clone(),
            encoding,
            order,
            text: text.first().map_or(0, |r| r.start)..end.unwrap_or(0),
        }))
    }

    /// The encoding of its entries; `None` if they fit no layout.
    pub const fn encoding(&self) -> Option<Encoding> {
        self.encoding
    }

    /// From the first executable address to the end of the last range (svma).
    pub const fn text(&self) -> &Range<u64> {
        &self.text
    }

    /// The table, sorted.
    ///
    /// # Errors
    /// Never, because [`Index::new`] has checked the sections.
    pub fn table(&self) -> Result<Sorted<'_>, Malformed> {
        let table = Table::new(&self.entries.data, &self.ips.data, self.ips.address)?;
        Ok(Sorted::new(table, self.order.as_deref()))
    }
}
