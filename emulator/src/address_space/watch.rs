//! The pages of a space from which instructions were decoded, and which of these have changed.

use super::frames::Frames;
use super::limits::PAGE_SIZE;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Changes that are reported byte by byte; beyond them, whole pages are forgotten.
pub(super) const CHANGES_MAX: usize = 4096;

/// For a page of an object that had no frame when it was decoded, because there was no room: a
/// version that no frame has.
pub(super) const UNKNOWN: (u32, u64) = (u32::MAX, 0);

/// The decoded pages of a space.
#[derive(Clone, Default, Debug)]
pub(super) struct Watch {
    /// Names the decoded code that belongs to the space.
    pub(super) stamp: u64,
    pages: BTreeSet<u64>,
    /// Of these, the pages that show an object: the frame, and its version when it was decoded.
    objects: BTreeMap<u64, (u32, u64)>,
    /// Ranges with decoded instructions that were written, mapped or unmapped.
    pub(super) changes: Vec<Range<u64>>,
}

fn bytes(page: u64) -> Range<u64> {
    page * PAGE_SIZE..(page + 1) * PAGE_SIZE
}

impl Watch {
    pub(super) fn new(stamp: u64) -> Watch {
        Watch {
            stamp,
            ..Watch::default()
        }
    }

    pub(super) fn contains(&self, page: u64) -> bool {
        self.pages.contains(&page)
    }

    /// Notes that instructions in a page were decoded. `version` is that of a page of an object.
    pub(super) fn insert(&mut self, page: u64, version: Option<(u32, u64)>) {
        self.pages.insert(page);
        if let Some(version) = version {
            self.objects.insert(page, version);
        }
    }

    /// Reports the decoded pages of a range: nothing is decoded there any longer.
    pub(super) fn forget(&mut self, range: &Range<u64>) {
        let pages = range.start / PAGE_SIZE..range.end / PAGE_SIZE;
        let gone: Vec<u64> = self.pages.range(pages).copied().collect();
        for page in gone {
            self.pages.remove(&page);
            self.objects.remove(&page);
            self.changes.push(bytes(page));
        }
    }

    /// Forgets all pages: nothing is decoded.
    pub(super) fn clear(&mut self) {
        self.pages.clear();
        self.objects.clear();
    }

    /// The decoded pages.
    pub(super) fn pages(&self) -> impl Iterator<Item = u64> {
        self.pages.iter().copied()
    }

    /// Reports a store of `size` bytes at `address`, inside a page.
    pub(super) fn stored(&mut self, address: u64, size: u64) {
        let page = address / PAGE_SIZE;
        if !self.contains(page) {
            return;
        }
        if self.changes.len() < CHANGES_MAX {
            self.changes.push(address..address + size);
        } else {
            self.forget(&bytes(page));
        }
    }

    /// Like [`Watch::stored`], to an object's frame: at all pages that show it.
    pub(super) fn stored_to(&mut self, frame: u32, in_page: u64, size: u64, frames: &Frames) {
        let version = frames.code_version(frame).unwrap_or_default();
        let mut pages = Vec::new();
        for (&page, (shown, seen)) in &mut self.objects {
            if *shown == frame {
                *seen = version;
            }
            if [frame, UNKNOWN.0].contains(shown) {
                pages.push(page);
            }
        }
        for page in pages {
            self.stored(page * PAGE_SIZE + in_page, size);
        }
    }

    /// Reports the pages of objects that others have changed.
    pub(super) fn check(&mut self, frames: &Frames) {
        let all = self.objects.iter();
        let changed =
            all.filter(|(_, (frame, version))| frames.code_version(*frame) != Some(*version));
        let changed: Vec<u64> = changed.map(|(&page, _)| page).collect();
        for page in changed {
            self.forget(&bytes(page));
        }
    }
}
