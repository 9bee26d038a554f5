//! Takes snapshots of memory and restores them.

use super::history::Mark;
use super::{AddressSpace, Area, Change, PAGE_SIZE, RestoreError};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The earlier content of memory. While the snapshot is held, the content of pages that change is
/// kept; when the snapshot or the memory is dropped, it is not.
#[derive(Debug)]
pub struct Snapshot {
    mark: Mark,
    areas: Arc<BTreeMap<u64, Area>>,
}

impl AddressSpace {
    /// Takes a snapshot. The cost does not depend on the size of memory: each page is copied at its
    /// first write after the snapshot.
    pub fn snapshot(&mut self) -> Snapshot {
        // So that the first store to each page takes the slow path.
        self.tlb.flush_writes();
        Snapshot {
            mark: self.pages.mark(),
            areas: self.areas.clone(),
        }
    }

    /// Restores memory to a snapshot. This snapshot and older ones stay valid; newer ones can no
    /// longer be restored.
    ///
    /// # Errors
    /// If the snapshot cannot be restored; nothing has changed then.
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

    /// Whether a snapshot is held.
    pub(crate) fn has_snapshots(&mut self) -> bool {
        self.pages.has_snapshots()
    }

    /// Limits the bytes kept for snapshots; the default is
    /// [`HISTORY_BYTES_MAX`](super::HISTORY_BYTES_MAX). Beyond the limit the oldest snapshots are
    /// dropped, and [`AddressSpace::restore`] reports that.
    pub fn set_history_max(&mut self, bytes: usize) {
        self.pages.history.bytes_max = bytes;
    }

    /// The number of bytes kept for snapshots.
    pub fn history_bytes(&self) -> usize {
        self.pages.history.bytes()
    }
}
