//! Snapshots of memory: taking one, and going back to it.

use super::history::Mark;
use super::{AddressSpace, Area, Change, PAGE_SIZE, RestoreError};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Memory as it was. While it is held, the pages that change are kept as they were then; when
/// it is dropped, or the memory is, they are not.
#[derive(Debug)]
pub struct Snapshot {
    mark: Mark,
    areas: Arc<BTreeMap<u64, Area>>,
}

impl AddressSpace {
    /// Remembers what is in memory now. The cost does not depend on how much that is: each page
    /// is copied when it is written for the first time since the last snapshot.
    pub fn snapshot(&mut self) -> Snapshot {
        // So that each page's first store is not missed.
        self.tlb.flush_writes();
        Snapshot {
            mark: self.pages.mark(),
            areas: self.areas.clone(),
        }
    }

    /// Makes memory what it was. The snapshot stays, and so do older ones; there is no way to
    /// newer ones any more.
    ///
    /// # Errors
    /// If there is no way back; nothing has changed then.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), RestoreError> {
        let changed = self.pages.restore(&snapshot.mark, &mut self.code_changes)?;
        for number in changed {
            self.note(|| Change::Mapped(number * PAGE_SIZE..(number + 1) * PAGE_SIZE));
        }
        if !Arc::ptr_eq(&self.areas, &snapshot.areas) {
            self.pages.all_code(&mut self.code_changes);
            let now = std::mem::replace(&mut self.areas, snapshot.areas.clone());
            for (&start, area) in now.iter().chain(snapshot.areas.iter()) {
                self.note(|| Change::Mapped(start..area.end));
            }
        }
        self.refusal = None;
        self.tlb.flush();
        Ok(())
    }

    /// Does anybody hold one?
    pub(crate) fn has_snapshots(&mut self) -> bool {
        self.pages.has_snapshots()
    }

    /// At most so many bytes are kept for snapshots,
    /// [`HISTORY_BYTES_MAX`](super::HISTORY_BYTES_MAX) unless told otherwise. When it would be
    /// more, there is no way back to the oldest snapshots any more; [`AddressSpace::restore`] says
    /// so.
    pub fn set_history_max(&mut self, bytes: usize) {
        self.pages.history.bytes_max = bytes;
    }

    /// Bytes kept for snapshots.
    pub fn history_bytes(&self) -> usize {
        self.pages.history.bytes()
    }
}
