//! Takes snapshots of memory and restores them.

use super::AddressSpace;
use super::area::Area;
use super::difference::Difference;
use super::history::{RestoreError, SnapshotGuard};
use super::ids::{ObjectId, SpaceId};
use super::limits::{PAGE_SIZE, TASK_SIZE};
use super::objects::{Objects, SavedObject};
use super::paging::SavedPaging;
use super::space::{Change, SavedSpace, Space};
use super::spaces::InactiveSpaces;
use hashbrown::HashSet;

/// The earlier content of memory: all its spaces and objects. While the snapshot is held, the
/// content of pages that change is kept; when the snapshot or the memory is dropped, it is not.
#[derive(Debug)]
pub struct Snapshot {
    mark: SnapshotGuard,
    /// The space that ran.
    id: SpaceId,
    own: SavedSpace,
    resting: Vec<(SpaceId, SavedSpace)>,
    objects: Vec<(ObjectId, SavedObject)>,
    paging: Option<SavedPaging>,
}

/// A space before it is restored, and the frames of its decoded pages.
struct ReplacedSpace {
    space: Space,
    code: Vec<(u64, Option<u32>)>,
}

impl AddressSpace {
    /// Takes a snapshot. The cost does not depend on the size of memory: each page is copied at its
    /// first write after the snapshot.
    pub fn snapshot(&mut self) -> Snapshot {
        // So that the first store to each page takes the slow path.
        self.tlb.flush_writes();
        let paging = self.save_paging();
        let resting = self.resting.iter();
        Snapshot {
            mark: self.frames.mark(),
            id: self.id,
            own: self.own.save(),
            resting: resting.map(|(&id, space)| (id, space.save())).collect(),
            objects: self.objects.save(),
            paging,
        }
    }

    /// Restores memory to a snapshot. This snapshot and older ones stay valid; newer ones can no
    /// longer be restored. The space that ran then runs again.
    ///
    /// # Errors
    /// If the snapshot cannot be restored; nothing has changed then.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), RestoreError> {
        // First, because it can fail.
        let changed = self.frames.undo(&snapshot.mark)?;

        let own = std::mem::replace(&mut self.own, Space::new(0, 0));
        let mut now = std::mem::take(&mut self.resting);
        now.insert(self.id, own);

        // With the frames of decoded pages, so that `follow` keeps code that is still the same.
        let before = now.into_iter().map(|(id, space)| {
            let frame = |page| (page, space.frame(page * PAGE_SIZE, &self.objects));
            let code = space.watch.pages().map(frame).collect();
            (id, ReplacedSpace { space, code })
        });
        let mut before: Vec<(SpaceId, ReplacedSpace)> = before.collect();

        let next = &mut self.next;
        let objects = &mut self.objects;

        let (own, resting) = self.frames.restore_owners(|frames| {
            // What is still there is acquired before it is released.
            let then = Objects::acquire(&snapshot.objects, frames);
            let now = std::mem::replace(objects, then);
            let mut acquire = |id: &SpaceId, saved: &SavedSpace| {
                let same = before.iter_mut().find(|(other, _)| other == id);
                *next += 1;
                let mut space = Space::acquire(saved, *next - 1, frames);
                if let Some((_, before)) = same {
                    space.follow(before, saved, objects, &changed);
                }
                space
            };

            let own = acquire(&snapshot.id, &snapshot.own);
            let resting = snapshot.resting.iter();
            let resting: InactiveSpaces = resting
                .map(|(id, saved)| (*id, acquire(id, saved)))
                .collect();

            // What has been acquired above keeps its frames.
            for (_, before) in before {
                before.space.table.release(frames);
            }
            now.release_all(frames);
            (own, resting)
        });

        (self.id, self.own, self.resting) = (snapshot.id, own, resting);
        self.refusal = None;
        self.tlb.flush();
        if let Some(paging) = &snapshot.paging {
            self.restore_paging(paging, &changed);
        }
        Ok(())
    }

    /// What has changed since a snapshot, the newest one, in memory in system mode.
    ///
    /// # Errors
    /// If the snapshot was dropped, or is not the newest one.
    pub fn difference(&mut self, since: &Snapshot) -> Result<Difference, RestoreError> {
        self.frames.difference(&since.mark)
    }

    /// Applies differences, in this order, to memory in system mode, whose paging was `paging` where they
    /// lead.
    pub(crate) fn apply<'a>(
        &mut self,
        differences: impl Iterator<Item = &'a Difference>,
        paging: &SavedPaging,
    ) {
        let mut changed = HashSet::new();
        for difference in differences {
            self.frames.apply(difference, &mut changed);
        }
        self.restore_paging(paging, &changed);
    }

    /// Whether a snapshot is held.
    #[cfg(test)]
    pub(crate) fn has_snapshots(&mut self) -> bool {
        self.frames.has_snapshots()
    }

    /// Limits the bytes kept for snapshots; the default is
    /// [`HISTORY_BYTES_MAX`](super::HISTORY_BYTES_MAX). Beyond the limit the oldest snapshots are
    /// dropped, and [`AddressSpace::restore`] reports that.
    pub fn set_history_max(&mut self, bytes: usize) {
        self.frames.history.bytes_max = bytes;
    }

    /// The number of bytes kept for snapshots.
    pub fn history_bytes(&self) -> usize {
        self.frames.history.bytes()
    }
}

impl Space {
    /// Takes over the decoded code of the same space as it was `before` it was restored, and
    /// reports what has changed.
    fn follow(
        &mut self,
        before: &mut ReplacedSpace,
        saved: &SavedSpace,
        objects: &Objects,
        changed: &HashSet<u32>,
    ) {
        let areas_changed = !before.space.areas.is_same(&self.areas);
        self.watch = std::mem::take(&mut before.space.watch);
        self.changes = before.space.changes.take();

        // Decoded code stays valid where the page has the same frame with the same content.
        for &(page, frame) in &before.code {
            let now = self.frame(page * PAGE_SIZE, objects);
            if areas_changed || now != frame || frame.is_some_and(|f| changed.contains(&f)) {
                let start = page * PAGE_SIZE;
                self.watch.forget(&(start..start + PAGE_SIZE));
            }
        }

        let Some(changes) = &mut self.changes else {
            return;
        };

        // Pages with another frame, and frames with other content.
        let mapped = |page: u64| Change::Mapped(page * PAGE_SIZE..(page + 1) * PAGE_SIZE);
        before
            .space
            .table
            .differences(&saved.table, |page| changes.push(mapped(page)));

        let all = 0..TASK_SIZE / PAGE_SIZE;
        self.table.each(&all, |page, frame| {
            if changed.contains(&frame) {
                changes.push(mapped(page));
            }
        });

        // Areas are not compared one by one. Those of an object may show other content.
        let gone = before.space.areas.iter().filter(|_| areas_changed);
        let is_noted = |area: &Area| areas_changed || area.object().is_some();
        let areas = self.areas.iter().filter(|(_, area)| is_noted(area));
        let areas = gone.chain(areas);
        changes.extend(areas.map(|(range, _)| Change::Mapped(range)));
    }
}
