//! The bytes of a file in memory: only what was written. What was not is a hole, which costs
//! nothing and is zero.

use crate::address_space::{Content, PAGE_SIZE, PageMissing, Source};
use crate::linux::errno::{Answer, Errno};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The largest size of a file, bytes: that of ext4 with blocks of 4 KiB.
const SIZE_MAX: u64 = ((1 << 32) - 1) * PAGE_SIZE;
const BLOCK: u64 = 512;

/// The bytes of a file. Copies share them until one is written.
#[derive(Clone, Debug, Default)]
pub(in crate::linux) struct Data {
    size: u64,
    /// By number. A page ends with what was last written to it; zeros follow.
    pages: Arc<BTreeMap<u64, Arc<Vec<u8>>>>,
}

/// The parts of a range that are in one page each: the number of the page, and where in it.
fn pieces(range: Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let (page, start) = (at / PAGE_SIZE, at % PAGE_SIZE);
        let end = PAGE_SIZE.min(start + range.end.checked_sub(at).filter(|&rest| rest > 0)?);
        at += end - start;
        Some((page, start as usize..end as usize))
    })
}

impl Data {
    /// The size of the file, bytes.
    pub(in crate::linux) fn size(&self) -> u64 {
        self.size
    }

    /// The number of bytes that are kept.
    pub(super) fn kept(&self) -> u64 {
        self.pages.values().map(|page| page.len() as u64).sum()
    }

    /// The number of blocks that the file occupies (`st_blocks`).
    pub(super) fn blocks(&self) -> u64 {
        self.pages.len() as u64 * (PAGE_SIZE / BLOCK)
    }

    /// How many more bytes are kept after a write to a range.
    pub(super) fn growth(&self, range: &Range<u64>) -> u64 {
        let grows = |(page, part): (u64, Range<usize>)| {
            let held = self.pages.get(&page).map_or(0, |page| page.len());
            part.end.saturating_sub(held) as u64
        };
        pieces(range.clone()).map(grows).sum()
    }

    /// Writes at a position.
    ///
    /// # Errors
    /// `EFBIG`.
    pub(super) fn write(&mut self, position: u64, bytes: &[u8]) -> Answer<()> {
        let range = Data::range(position, bytes.len() as u64)?;
        self.size = self.size.max(range.end);
        let pages = Arc::make_mut(&mut self.pages);
        let mut rest = bytes;
        for (number, part) in pieces(range) {
            let from;
            (from, rest) = rest.split_at(part.len());
            let page = Arc::make_mut(pages.entry(number).or_default());
            if page.len() < part.end {
                page.resize(part.end, 0);
            }
            page[part].copy_from_slice(from);
        }
        Ok(())
    }

    /// The range of a write.
    ///
    /// # Errors
    /// `EFBIG`.
    pub(super) fn range(position: u64, size: u64) -> Answer<Range<u64>> {
        let end = position.checked_add(size).filter(|&end| end <= SIZE_MAX);
        Ok(position..end.ok_or(Errno::EFBIG)?)
    }

    /// Truncates the file, or extends it with a hole.
    ///
    /// # Errors
    /// `EFBIG`.
    pub(super) fn resize(&mut self, size: u64) -> Answer<()> {
        Data::range(0, size)?;
        if size < self.size {
            self.punch(size..self.size.next_multiple_of(PAGE_SIZE));
        }
        self.size = size;
        Ok(())
    }

    /// Makes a hole of whole pages, and zeros of the rest of the range. The size stays.
    pub(super) fn punch(&mut self, range: Range<u64>) {
        let pages = Arc::make_mut(&mut self.pages);
        let whole = range.start.div_ceil(PAGE_SIZE)..range.end / PAGE_SIZE;
        if whole.start < whole.end {
            pages.retain(|number, _| !whole.contains(number));
        }
        let ends = [range.start / PAGE_SIZE, range.end / PAGE_SIZE];
        for number in ends {
            let start = range.start.max(number * PAGE_SIZE) - number * PAGE_SIZE;
            let end = range.end.min((number + 1) * PAGE_SIZE) - number * PAGE_SIZE;
            let Some(page) = pages.get_mut(&number) else {
                continue;
            };
            let page = Arc::make_mut(page);
            let held = page.len();
            if end as usize >= held {
                page.truncate(start as usize);
            } else {
                page[start as usize..end as usize].fill(0);
            }
        }
    }

    /// Allocates what is not kept yet of a range, as zeros. The size stays.
    pub(super) fn allocate(&mut self, range: Range<u64>) {
        let pages = Arc::make_mut(&mut self.pages);
        for (number, part) in pieces(range) {
            let page = Arc::make_mut(pages.entry(number).or_default());
            if page.len() < part.end {
                page.resize(part.end, 0);
            }
        }
    }

    /// Reads at a position; returns the number of bytes.
    pub(super) fn read(&self, position: u64, buffer: &mut [u8]) -> usize {
        let held = self.size.saturating_sub(position).min(buffer.len() as u64);
        let mut rest = &mut buffer[..held as usize];
        for (number, part) in pieces(position..position.saturating_add(held)) {
            let to;
            (to, rest) = rest.split_at_mut(part.len());
            let page = self.pages.get(&number);
            let page = page.and_then(|page| page.get(part.start..));
            let page = page.unwrap_or_default();
            let (written, hole) = to.split_at_mut(page.len().min(part.len()));
            written.copy_from_slice(&page[..written.len()]);
            hole.fill(0);
        }
        held as usize
    }

    /// All bytes, of which the caller limits the number.
    pub(in crate::linux) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size as usize];
        self.read(0, &mut bytes);
        bytes
    }

    /// The first byte from `at` on that is not in a hole, or that is (`SEEK_DATA`, `SEEK_HOLE`).
    /// There is a hole at the end of the file. `None` if there is none before the end.
    pub(in crate::linux) fn seek(&self, at: u64, hole: bool) -> Option<u64> {
        if at >= self.size {
            return None;
        }
        let first = at / PAGE_SIZE;
        let found = if hole {
            let held = self.pages.range(first..).zip(first..);
            let run = held.take_while(|&((&number, _), expected)| number == expected);
            first + run.count() as u64
        } else {
            *self.pages.range(first..).next()?.0
        };
        let found = at.max(found * PAGE_SIZE);
        if hole {
            return Some(found.min(self.size));
        }
        (found < self.size).then_some(found)
    }

    /// The bytes as they are now, for a mapping.
    pub(in crate::linux) fn content(&self) -> Content {
        Content::new(Arc::new(self.clone()), self.size)
    }
}

impl Source for Data {
    fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), PageMissing> {
        let held = Data::read(self, offset, to);
        to[held..].fill(0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: u64 = PAGE_SIZE;

    #[test]
    fn a_hole_costs_nothing_and_is_zero() {
        let mut data = Data::default();
        data.resize(1 << 31).unwrap();
        data.write(5 * P + 10, b"abc").unwrap();
        assert_eq!((data.kept(), data.blocks(), data.size()), (13, 8, 1 << 31));
        let mut read = [1; 6];
        assert_eq!(data.read(5 * P + 8, &mut read), 6);
        assert_eq!(&read, b"\0\0abc\0");
        assert_eq!(data.seek(0, false), Some(5 * P));
        assert_eq!(data.seek(5 * P + 1, false), Some(5 * P + 1));
        assert_eq!(data.seek(5 * P + 1, true), Some(6 * P));
        assert_eq!(data.seek(6 * P, false), None);
        assert_eq!(data.seek(1 << 31, true), None);
    }

    #[test]
    fn what_is_cut_off_does_not_come_back() {
        let mut data = Data::default();
        data.write(0, &[7; 3 * P as usize]).unwrap();
        data.resize(P + 5).unwrap();
        data.resize(3 * P).unwrap();
        let mut read = [1; 8];
        data.read(P + 2, &mut read);
        assert_eq!(read, [7, 7, 7, 0, 0, 0, 0, 0]);
        data.write(0, &[7; 3 * P as usize]).unwrap();
        data.punch(10..P + 10);
        data.read(P + 7, &mut read);
        assert_eq!(read, [0, 0, 0, 7, 7, 7, 7, 7]);
        data.punch(P..2 * P);
        assert_eq!(
            (data.seek(0, true), data.seek(P, false)),
            (Some(P), Some(2 * P))
        );
        assert_eq!(data.to_vec()[..12], [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0]);
        assert_eq!(data.write(SIZE_MAX, b"a"), Err(Errno::EFBIG));
    }

    #[test]
    fn a_copy_does_not_follow() {
        let mut data = Data::default();
        data.write(0, b"old").unwrap();
        let content = data.content();
        data.write(0, b"new").unwrap();
        let mut read = [0; 3];
        content.read(0, &mut read).unwrap();
        assert_eq!((&read, &data.to_vec()[..]), (b"old", &b"new"[..]));
    }
}
