//! The content of frames when snapshots were taken, so that it can be restored. Not here: which page
//! had which frame (`table`).
//!
//! Each snapshot starts an *epoch*, which lasts until the next snapshot. For the newest epoch,
//! whole frames are kept, each copied before its first write; when the next epoch starts, only the
//! lines that differ are kept. Restoring undoes epoch by epoch. So a snapshot costs nothing for
//! frames that are not written, and memory without snapshots has no cost.

use super::limits::PAGE_SIZE;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Default limit of the bytes kept for all snapshots together.
pub const HISTORY_BYTES_MAX: usize = 256 << 20;
/// Maximum number of copies kept for reuse.
const SPARE_MAX: usize = 64;
/// Bytes of a line: the 64th part of a frame.
pub(super) const LINE: usize = PAGE_SIZE as usize / 64;
/// Approximate cost of a frame besides its bytes.
const OVERHEAD: usize = 64;

/// The earlier content of a frame.
#[derive(Debug)]
pub(super) enum EarlierContent {
    /// The frame was not in use.
    Unused,
    Whole(Box<[u8]>),
    /// The content at the end of the epoch except for these lines: a bit and [`LINE`] bytes for
    /// each.
    Lines(u64, Box<[u8]>),
}

impl EarlierContent {
    /// The lines that differ from `now`.
    fn lines(was: &[u8], now: &[u8]) -> EarlierContent {
        let (was, now) = (was.as_chunks::<LINE>().0, now.as_chunks::<LINE>().0);
        let mut mask = 0;
        for (index, (was, now)) in was.iter().zip(now).enumerate() {
            // Each word without a branch and without a call.
            let (was, now) = (was.as_chunks::<8>().0, now.as_chunks::<8>().0);
            let words = was.iter().zip(now);
            let differs = words.fold(0, |differs, (was, now)| {
                differs | (u64::from_ne_bytes(*was) ^ u64::from_ne_bytes(*now))
            });
            mask |= u64::from(differs != 0) << index;
        }
        let mut bytes = Vec::with_capacity(mask.count_ones() as usize * LINE);
        for index in ones(mask) {
            bytes.extend_from_slice(&was[index]);
        }
        EarlierContent::Lines(mask, bytes.into())
    }

    /// Restores lines of a frame.
    pub(super) fn put_lines(mask: u64, from: &[u8], frame: &mut [u8]) {
        for (from, index) in from.chunks_exact(LINE).zip(ones(mask)) {
            frame[index * LINE..][..LINE].copy_from_slice(from);
        }
    }

    /// Merges two epochs: `self` is the frame at the start of the first one, `next` at the start of
    /// the second one. Returns the frame at the start of both.
    fn before(self, next: EarlierContent) -> EarlierContent {
        let EarlierContent::Lines(mask, bytes) = self else {
            return self;
        };
        match next {
            // The frame was in use when the second epoch started.
            EarlierContent::Unused => EarlierContent::Lines(mask, bytes),
            EarlierContent::Whole(mut frame) => {
                EarlierContent::put_lines(mask, &bytes, &mut frame);
                EarlierContent::Whole(frame)
            }
            EarlierContent::Lines(next_mask, next_bytes) => {
                let mut frame = [0; PAGE_SIZE as usize];
                EarlierContent::put_lines(next_mask, &next_bytes, &mut frame);
                EarlierContent::put_lines(mask, &bytes, &mut frame);
                let all = ones(mask | next_mask);
                let lines = all.flat_map(|index| frame[index * LINE..][..LINE].to_vec());
                EarlierContent::Lines(mask | next_mask, lines.collect())
            }
        }
    }

    fn cost(&self) -> usize {
        OVERHEAD
            + match self {
                EarlierContent::Unused => 0,
                EarlierContent::Whole(bytes) | EarlierContent::Lines(_, bytes) => bytes.len(),
            }
    }
}

/// The numbers of the set bits.
pub(super) fn ones(mask: u64) -> impl Iterator<Item = usize> {
    let lowest = |left: &u64| Some(left & left.wrapping_sub(1));
    let all = std::iter::successors(Some(mask), lowest);
    all.take_while(|&left| left != 0)
        .map(|left| left.trailing_zeros() as usize)
}

/// Why a snapshot cannot be restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RestoreError {
    /// Too much has changed since: its data was dropped, the oldest snapshots first.
    #[error("the snapshot was dropped: too much has changed since")]
    Dropped,
    /// An older snapshot was restored in the meantime.
    #[error("an older snapshot was restored since this one was taken")]
    Undone,
    /// The snapshot is not the newest one.
    #[error("there is a newer snapshot")]
    NotNewest,
    /// The snapshot belongs to another memory.
    #[error("the snapshot belongs to another memory")]
    Foreign,
}

/// The numbers of snapshots dropped by their holder, until the history processes them.
type DroppedSnapshots = Arc<Mutex<Vec<u64>>>;

fn lock(released: &DroppedSnapshots) -> MutexGuard<'_, Vec<u64>> {
    released.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a snapshot alive: while it exists, memory can be restored to it.
#[derive(Debug)]
pub(super) struct SnapshotGuard {
    /// Increases from snapshot to snapshot; unique within a history.
    number: u64,
    released: DroppedSnapshots,
}

impl Drop for SnapshotGuard {
    fn drop(&mut self) {
        lock(&self.released).push(self.number);
    }
}

/// The changes between one snapshot and the next.
#[derive(Debug)]
struct Epoch {
    number: u64,
    /// By frame. Empty in the newest epoch, whose frames are in [`History::open`].
    frames: Vec<(u32, EarlierContent)>,
}

/// The changes since the oldest snapshot that is held.
#[derive(Debug)]
pub(super) struct History {
    /// One for each held snapshot, the newest last.
    epochs: VecDeque<Epoch>,
    /// The frames that changed in the newest epoch; never as lines.
    open: HashMap<u32, EarlierContent>,
    spare: Vec<Box<[u8]>>,
    /// The number of the next snapshot.
    next: u64,
    /// Snapshots below this number that are no longer held were dropped.
    dropped_below: u64,
    /// The cost of all epochs.
    bytes: usize,
    pub(super) bytes_max: usize,
    released: DroppedSnapshots,
}

impl Default for History {
    fn default() -> Self {
        History {
            epochs: VecDeque::new(),
            open: HashMap::new(),
            spare: Vec::new(),
            next: 0,
            dropped_below: 0,
            bytes: 0,
            bytes_max: HISTORY_BYTES_MAX,
            released: DroppedSnapshots::default(),
        }
    }
}

/// A copy of a memory has no snapshots: those that are held belong to the original.
impl Clone for History {
    fn clone(&self) -> Self {
        History {
            bytes_max: self.bytes_max,
            ..History::default()
        }
    }
}

impl History {
    /// Whether there are no snapshots.
    pub(super) fn is_empty(&self) -> bool {
        self.epochs.is_empty()
    }

    /// Bytes kept for all snapshots.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the frame at the start of the newest epoch is saved.
    pub(super) fn is_saved(&self, frame: u32) -> bool {
        self.open.contains_key(&frame)
    }

    /// Starts an epoch. `now` returns the content of a frame in use.
    pub(super) fn mark<'a>(&mut self, now: impl Fn(u32) -> Option<&'a [u8]>) -> SnapshotGuard {
        self.forget_released(&now);

        // The epoch ends: of its whole copies, the lines that differ now are enough.
        if let Some(newest) = self.epochs.back_mut() {
            newest.frames.reserve_exact(self.open.len());
            for (frame, was) in self.open.drain() {
                self.bytes -= was.cost();
                let was = match (was, now(frame)) {
                    (EarlierContent::Whole(bytes), Some(now)) => {
                        let lines = EarlierContent::lines(&bytes, now);
                        if self.spare.len() < SPARE_MAX {
                            self.spare.push(bytes);
                        }
                        lines
                    }
                    (was, _) => was,
                };

                // A frame that has its old content again needs nothing.
                if !matches!(was, EarlierContent::Lines(0, _)) {
                    self.bytes += was.cost();
                    newest.frames.push((frame, was));
                }
            }
        }

        let number = self.next;
        self.next += 1;
        self.epochs.push_back(Epoch {
            number,
            frames: Vec::new(),
        });

        SnapshotGuard {
            number,
            released: self.released.clone(),
        }
    }

    /// Saves a frame before its first change in the newest epoch. `None` if it is not in use.
    pub(super) fn save(&mut self, frame: u32, bytes: Option<&[u8]>) {
        if self.epochs.is_empty() {
            return;
        }

        let was = match (bytes, self.spare.pop()) {
            (None, _) => EarlierContent::Unused,
            (Some(bytes), None) => EarlierContent::Whole(bytes.into()),
            (Some(bytes), Some(mut spare)) => {
                spare.copy_from_slice(bytes);
                EarlierContent::Whole(spare)
            }
        };

        self.bytes += was.cost();
        self.open.insert(frame, was);

        // The oldest snapshots are given up first: `undo` then returns `Dropped`.
        while self.bytes > self.bytes_max
            && let Some(oldest) = self.epochs.pop_front()
        {
            self.dropped_below = oldest.number + 1;
            self.drop_frames(oldest.frames.into_iter());
            if self.epochs.is_empty() {
                let open = std::mem::take(&mut self.open);
                self.drop_frames(open.into_iter());
            }
        }
    }

    fn drop_frames(&mut self, frames: impl Iterator<Item = (u32, EarlierContent)>) {
        self.bytes -= frames.map(|(_, was)| was.cost()).sum::<usize>();
    }

    /// Ends the epochs of released snapshots; their frames are merged into the epoch before.
    pub(super) fn forget_released<'a>(&mut self, now: &impl Fn(u32) -> Option<&'a [u8]>) {
        let released = std::mem::take(&mut *lock(&self.released));
        for number in released {
            let Ok(index) = self.index(number) else {
                continue;
            };

            let is_newest = index + 1 == self.epochs.len();
            let ended = self.epochs.remove(index).map(|epoch| epoch.frames);
            let ended = ended.unwrap_or_default();

            // The epoch's changes go to the one before it, whose snapshot still needs them.
            let before = index.checked_sub(1).and_then(|i| self.epochs.get_mut(i));

            let Some(before) = before else {
                // No older snapshot needs them.
                self.drop_frames(ended.into_iter());
                if is_newest {
                    let open = std::mem::take(&mut self.open);
                    self.drop_frames(open.into_iter());
                }
                continue;
            };

            // The epoch before becomes the newest, and frames of the newest are whole, in `open`.
            if is_newest {
                for (frame, was) in std::mem::take(&mut before.frames) {
                    self.bytes -= was.cost();
                    let next = self.open.remove(&frame);
                    self.bytes -= next.as_ref().map_or(0, EarlierContent::cost);
                    // A frame that has not changed since holds its content at that time.
                    let whole = || {
                        now(frame).map_or(EarlierContent::Unused, |now| {
                            EarlierContent::Whole(now.into())
                        })
                    };
                    let was = was.before(next.unwrap_or_else(whole));
                    self.bytes += was.cost();
                    self.open.insert(frame, was);
                }
                continue;
            }

            let mut frames: HashMap<u32, EarlierContent> =
                std::mem::take(&mut before.frames).into_iter().collect();
            for (frame, next) in ended {
                self.bytes -= next.cost();
                match frames.entry(frame) {
                    Entry::Occupied(mut entry) => {
                        let was = std::mem::replace(entry.get_mut(), EarlierContent::Unused);
                        self.bytes -= was.cost();
                        let was = was.before(next);
                        self.bytes += was.cost();
                        entry.insert(was);
                    }
                    Entry::Vacant(entry) => {
                        self.bytes += next.cost();
                        entry.insert(next);
                    }
                }
            }

            before.frames = frames.into_iter().collect();
        }
    }

    fn index(&self, number: u64) -> Result<usize, usize> {
        self.epochs
            .binary_search_by_key(&number, |epoch| epoch.number)
    }

    /// The number of epochs to undo, with [`History::undo`], to get back to a snapshot.
    pub(super) fn epochs_since(&self, mark: &SnapshotGuard) -> Result<usize, RestoreError> {
        if !Arc::ptr_eq(&mark.released, &self.released) {
            return Err(RestoreError::Foreign);
        }
        match self.index(mark.number) {
            Ok(index) => Ok(self.epochs.len() - index),
            Err(_) if mark.number < self.dropped_below => Err(RestoreError::Dropped),
            Err(_) => Err(RestoreError::Undone),
        }
    }

    /// The frames that have changed in the newest epoch, with their content before, in order.
    pub(super) fn newest(&self) -> Vec<(u32, &EarlierContent)> {
        let open = self.open.iter();
        let mut frames: Vec<_> = open.map(|(&frame, was)| (frame, was)).collect();
        frames.sort_unstable_by_key(|(frame, _)| *frame);
        frames
    }

    /// Takes the changes of the newest epoch, and ends it unless it is the `last` to undo.
    pub(super) fn undo(&mut self, last: bool) -> Vec<(u32, EarlierContent)> {
        let frames: Vec<(u32, EarlierContent)> = self.open.drain().collect();
        self.bytes -= frames.iter().map(|(_, was)| was.cost()).sum::<usize>();
        if !last {
            self.epochs.pop_back();
            if let Some(newest) = self.epochs.back_mut() {
                self.open.extend(newest.frames.drain(..));
            }
        }
        frames
    }
}
