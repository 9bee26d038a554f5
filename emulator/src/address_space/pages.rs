//! The pages of an address space that are in use: their bytes, and which of them contain decoded
//! instructions. Not here: areas, permissions.

use super::PAGE_SIZE;
use super::history::{History, Mark, RestoreError, Was};
use hashbrown::HashMap;
use std::ops::Range;

#[derive(Clone, Copy, Debug)]
struct Page {
    /// The page's index in [`Pages::bytes`].
    frame: u32,
    /// Instructions in the page were decoded.
    code: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Pages {
    /// The bytes of all frames, contiguous, so that one bounds check is enough for an access.
    bytes: Vec<u8>,
    /// Unused frames.
    free: Vec<u32>,
    by_number: HashMap<u64, Page>,
    max: usize,
    /// The earlier content of pages, for snapshots.
    pub(super) history: Box<History>,
}

impl Pages {
    pub(super) fn new(max: usize) -> Pages {
        Pages {
            bytes: Vec::new(),
            free: Vec::new(),
            by_number: HashMap::new(),
            max: max.min(u32::MAX as usize),
            history: Box::default(),
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

    /// Whether there is room for `new` more pages.
    pub(super) fn has_room(&self, new: usize) -> bool {
        self.by_number.len() + new <= self.max
    }

    /// The offset of the page in [`Pages::bytes`].
    pub(super) fn base(&self, number: u64) -> Option<usize> {
        let page = self.by_number.get(&number)?;
        Some(page.frame as usize * PAGE_SIZE as usize)
    }

    pub(super) fn get(&self, number: u64) -> Option<&[u8]> {
        bytes_of(&self.by_number, &self.bytes, number)
    }

    /// Adds a page with undefined content, which the caller fills. `None` if there is no room.
    pub(super) fn insert(&mut self, number: u64) -> Option<usize> {
        if !self.has_room(1) {
            return None;
        }
        self.save(number);
        Some(self.place(number))
    }

    /// Assigns a frame to a page that is not in use; returns its offset.
    fn place(&mut self, number: u64) -> usize {
        let frame = match self.free.pop() {
            Some(frame) => frame,
            None => {
                let frame = self.bytes.len() / PAGE_SIZE as usize;
                self.bytes.resize(self.bytes.len() + PAGE_SIZE as usize, 0);
                frame as u32
            }
        };
        self.by_number.insert(number, Page { frame, code: false });
        frame as usize * PAGE_SIZE as usize
    }

    /// Saves the content of a page that is about to be written, created or dropped. Must be called
    /// at least once after each snapshot.
    #[inline]
    pub(super) fn save(&mut self, number: u64) {
        if !self.history.is_empty() {
            self.save_for_snapshots(number);
        }
    }

    #[cold]
    fn save_for_snapshots(&mut self, number: u64) {
        if self.history.is_saved(number) {
            return;
        }
        self.forget_released();
        // That may have changed which snapshot is the newest.
        if !self.history.is_saved(number) {
            let bytes = bytes_of(&self.by_number, &self.bytes, number);
            self.history.save(number, bytes);
        }
    }

    fn forget_released(&mut self) {
        let now = |number| bytes_of(&self.by_number, &self.bytes, number);
        self.history.forget_released(&now);
    }

    /// Starts a snapshot of all pages.
    pub(super) fn mark(&mut self) -> Mark {
        let now = |number| bytes_of(&self.by_number, &self.bytes, number);
        self.history.mark(now)
    }

    /// Whether a snapshot is held.
    pub(super) fn has_snapshots(&mut self) -> bool {
        self.forget_released();
        !self.history.is_empty()
    }

    /// Drops the pages of a range, and reports where it had decoded instructions.
    pub(super) fn remove(&mut self, range: &Range<u64>, code_changes: &mut Vec<Range<u64>>) {
        self.code_changed(range, code_changes);
        for number in self.inside(range) {
            self.save(number);
            self.free(number);
        }
    }

    fn free(&mut self, number: u64) {
        if let Some(page) = self.by_number.remove(&number) {
            self.free.push(page.frame);
        }
    }

    /// Restores all pages to a snapshot. Returns the numbers of the pages that changed since, and
    /// reports where they had decoded instructions.
    pub(super) fn restore(
        &mut self,
        mark: &Mark,
        code_changes: &mut Vec<Range<u64>>,
    ) -> Result<Vec<u64>, RestoreError> {
        self.forget_released();
        let mut changed = Vec::new();
        for left in (0..self.history.epochs_since(mark)?).rev() {
            for (number, was) in self.history.undo(left == 0) {
                if self.is_code(number) {
                    code_changes.push(number * PAGE_SIZE..(number + 1) * PAGE_SIZE);
                }
                changed.push(number);
                self.put_back(number, &was);
            }
        }
        changed.sort_unstable();
        changed.dedup();
        Ok(changed)
    }

    fn put_back(&mut self, number: u64, was: &Was) {
        if let Was::Unused = was {
            self.free(number);
            return;
        }
        // There is room: the page was in use at that time.
        let base = self.base(number).unwrap_or_else(|| self.place(number));
        let page = &mut self.bytes[base..base + PAGE_SIZE as usize];
        match was {
            Was::Unused => {}
            Was::Whole(bytes) => page.copy_from_slice(bytes),
            Was::Lines(mask, bytes) => Was::put_lines(*mask, bytes, page),
        }
    }

    /// The numbers of the pages in use inside a range.
    pub(super) fn inside(&self, range: &Range<u64>) -> Vec<u64> {
        let numbers = range.start / PAGE_SIZE..range.end / PAGE_SIZE;
        if (numbers.end - numbers.start) as usize > self.by_number.len() {
            let all = self.by_number.keys().copied();
            all.filter(|number| numbers.contains(number)).collect()
        } else {
            numbers.filter(|&number| self.contains(number)).collect()
        }
    }

    /// Reports all pages with decoded instructions.
    pub(super) fn all_code(&self, changes: &mut Vec<Range<u64>>) {
        let code = self.by_number.iter().filter(|(_, page)| page.code);
        changes.extend(code.map(|(number, _)| number * PAGE_SIZE..(number + 1) * PAGE_SIZE));
    }

    /// Reports the pages of a range with decoded instructions.
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

    /// Whether the page has decoded instructions.
    pub(super) fn is_code(&self, number: u64) -> bool {
        self.by_number.get(&number).is_some_and(|page| page.code)
    }

    /// Marks a page that has decoded instructions.
    pub(super) fn set_code(&mut self, number: u64) {
        if let Some(page) = self.by_number.get_mut(&number) {
            page.code = true;
        }
    }
}

/// The content of a page that is in use.
fn bytes_of<'a>(by_number: &HashMap<u64, Page>, bytes: &'a [u8], number: u64) -> Option<&'a [u8]> {
    let base = by_number.get(&number)?.frame as usize * PAGE_SIZE as usize;
    bytes.get(base..base + PAGE_SIZE as usize)
}
