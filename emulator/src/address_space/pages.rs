//! The pages of an address space that are in use: their bytes, and which of them hold
//! instructions that were decoded. Not here: areas, permissions.

use super::PAGE_SIZE;
use hashbrown::HashMap;
use std::ops::Range;

/// A page in use.
#[derive(Clone, Copy, Debug)]
struct Page {
    /// Which page of [`Pages::bytes`].
    frame: u32,
    /// Instructions in it were decoded.
    code: bool,
}

/// All pages in use.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    /// One behind the other, so that one bounds check serves an access.
    bytes: Vec<u8>,
    /// Frames that nothing uses any more.
    free: Vec<u32>,
    by_number: HashMap<u64, Page>,
    max: usize,
}

impl Pages {
    pub(super) fn new(max: usize) -> Pages {
        Pages {
            bytes: Vec::new(),
            free: Vec::new(),
            by_number: HashMap::new(),
            max: max.min(u32::MAX as usize),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        self.by_number.contains_key(&number)
    }

    pub(super) fn count(&self) -> usize {
        self.by_number.len()
    }

    /// Is there room for `new` more?
    pub(super) fn has_room(&self, new: usize) -> bool {
        self.by_number.len() + new <= self.max
    }

    /// Where in [`Pages::bytes`] it begins.
    pub(super) fn base(&self, number: u64) -> Option<usize> {
        let page = self.by_number.get(&number)?;
        Some(page.frame as usize * PAGE_SIZE as usize)
    }

    pub(super) fn get(&self, number: u64) -> Option<&[u8]> {
        let base = self.base(number)?;
        self.bytes.get(base..base + PAGE_SIZE as usize)
    }

    /// A page of zeros, or of what a page held that is gone: the caller fills it. `None` if there
    /// is no room.
    pub(super) fn insert(&mut self, number: u64) -> Option<usize> {
        if !self.has_room(1) {
            return None;
        }
        let frame = match self.free.pop() {
            Some(frame) => frame,
            None => {
                let frame = self.bytes.len() / PAGE_SIZE as usize;
                self.bytes.resize(self.bytes.len() + PAGE_SIZE as usize, 0);
                frame as u32
            }
        };
        self.by_number.insert(number, Page { frame, code: false });
        Some(frame as usize * PAGE_SIZE as usize)
    }

    /// Drops the pages of a range, and says where instructions were decoded in it.
    pub(super) fn remove(&mut self, range: &Range<u64>, code_changes: &mut Vec<Range<u64>>) {
        self.code_changed(range, code_changes);
        for number in self.inside(range) {
            if let Some(page) = self.by_number.remove(&number) {
                self.free.push(page.frame);
            }
        }
    }

    /// The numbers of pages in use inside a range.
    fn inside(&self, range: &Range<u64>) -> Vec<u64> {
        let numbers = range.start / PAGE_SIZE..range.end / PAGE_SIZE;
        if (numbers.end - numbers.start) as usize > self.by_number.len() {
            let all = self.by_number.keys().copied();
            all.filter(|number| numbers.contains(number)).collect()
        } else {
            numbers.filter(|&number| self.contains(number)).collect()
        }
    }

    /// Notes the pages of a range in which instructions were decoded.
    pub(super) fn code_changed(&self, range: &Range<u64>, changes: &mut Vec<Range<u64>>) {
        if !self.by_number.values().any(|page| page.code) {
            return;
        }
        for number in self.inside(range) {
            if self.is_code(number) {
                changes.push(number * PAGE_SIZE..(number + 1) * PAGE_SIZE);
            }
        }
    }

    /// Were instructions in it decoded?
    pub(super) fn is_code(&self, number: u64) -> bool {
        self.by_number.get(&number).is_some_and(|page| page.code)
    }

    /// From now on instructions in it are decoded.
    pub(super) fn set_code(&mut self, number: u64) {
        if let Some(page) = self.by_number.get_mut(&number) {
            page.code = true;
        }
    }
}
