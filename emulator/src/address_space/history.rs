//! The content of pages when snapshots were taken, so that memory can be restored to it.
//!
//! Each snapshot starts an *epoch*, which lasts until the next snapshot. For the newest epoch,
//! whole pages are kept, each copied before its first write; when the next epoch starts, only the
//! lines that differ are kept. Restoring undoes epoch by epoch. So a snapshot costs nothing for
//! pages that are not written, and memory without snapshots has no cost.

use super::PAGE_SIZE;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Default limit of the bytes kept for all snapshots together.
pub const HISTORY_BYTES_MAX: usize = 256 << 20;
/// Maximum number of page copies kept for reuse.
const SPARE_MAX: usize = 64;
/// Bytes of a line: the 64th part of a page.
const LINE: usize = PAGE_SIZE as usize / 64;
/// Approximate cost of a page besides its bytes.
const OVERHEAD: usize = 64;

/// The earlier content of a page.
#[derive(Debug)]
pub(super) enum Was {
    /// The page was not in use.
    Unused,
    Whole(Box<[u8]>),
    /// The content at the end of the epoch except for these lines: a bit and [`LINE`] bytes for
    /// each.
    Lines(u64, Box<[u8]>),
}

impl Was {
    /// The lines that differ from `now`.
    fn lines(was: &[u8], now: &[u8]) -> Was {
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
        Was::Lines(mask, bytes.into())
    }

    /// Restores lines of a page.
    pub(super) fn put_lines(mask: u64, from: &[u8], page: &mut [u8]) {
        for (from, index) in from.chunks_exact(LINE).zip(ones(mask)) {
            page[index * LINE..][..LINE].copy_from_slice(from);
        }
    }

    /// Merges two epochs: `self` is the page at the start of the first one, `next` at the start of
    /// the second one. Returns the page at the start of both.
    fn before(self, next: Was) -> Was {
        let Was::Lines(mask, bytes) = self else {
            return self;
        };
        match next {
            // The page was in use when the second epoch started.
            Was::Unused => Was::Lines(mask, bytes),
            Was::Whole(mut page) => {
                Was::put_lines(mask, &bytes, &mut page);
                Was::Whole(page)
            }
            Was::Lines(next_mask, next_bytes) => {
                let mut page = [0; PAGE_SIZE as usize];
                Was::put_lines(next_mask, &next_bytes, &mut page);
                Was::put_lines(mask, &bytes, &mut page);
                let all = ones(mask | next_mask);
                let lines = all.flat_map(|index| page[index * LINE..][..LINE].to_vec());
                Was::Lines(mask | next_mask, lines.collect())
            }
        }
    }

    fn cost(&self) -> usize {
        OVERHEAD
            + match self {
                Was::Unused => 0,
                Was::Whole(bytes) | Was::Lines(_, bytes) => bytes.len(),
            }
    }
}

/// The numbers of the set bits.
fn ones(mask: u64) -> impl Iterator<Item = usize> {
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
    /// The snapshot belongs to another memory.
    #[error("the snapshot belongs to another memory")]
    Foreign,
}

/// The numbers of snapshots dropped by their holder, until the history processes them.
type Released = Arc<Mutex<Vec<u64>>>;

fn lock(released: &Released) -> MutexGuard<'_, Vec<u64>> {
    released.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a snapshot alive: while it exists, memory can be restored to it.
#[derive(Debug)]
pub(super) struct Mark {
    /// Increases from snapshot to snapshot; unique within a history.
    number: u64,
    released: Released,
}

impl Drop for Mark {
    fn drop(&mut self) {
        lock(&self.released).push(self.number);
    }
}

/// The changes between one snapshot and the next.
#[derive(Debug)]
struct Epoch {
    number: u64,
    /// By page. Empty in the newest epoch, whose pages are in [`History::open`].
    pages: Vec<(u64, Was)>,
}

/// The changes since the oldest snapshot that is held.
#[derive(Debug)]
pub(super) struct History {
    /// One for each held snapshot, the newest last.
    epochs: VecDeque<Epoch>,
    /// The pages that changed in the newest epoch; never as lines.
    open: HashMap<u64, Was>,
    spare: Vec<Box<[u8]>>,
    /// The number of the next snapshot.
    next: u64,
    /// Snapshots below this number that are no longer held were dropped.
    dropped_below: u64,
    /// The cost of all epochs.
    bytes: usize,
    pub(super) bytes_max: usize,
    released: Released,
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
            released: Released::default(),
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

    /// Whether the page at the start of the newest epoch is saved.
    pub(super) fn is_saved(&self, page: u64) -> bool {
        self.open.contains_key(&page)
    }

    /// Starts an epoch. `now` returns the content of a page in use.
    pub(super) fn mark<'a>(&mut self, now: impl Fn(u64) -> Option<&'a [u8]>) -> Mark {
        self.forget_released(&now);
        if let Some(newest) = self.epochs.back_mut() {
            newest.pages.reserve_exact(self.open.len());
            for (page, was) in self.open.drain() {
                self.bytes -= was.cost();
                let was = match (was, now(page)) {
                    (Was::Whole(bytes), Some(now)) => {
                        let lines = Was::lines(&bytes, now);
                        if self.spare.len() < SPARE_MAX {
                            self.spare.push(bytes);
                        }
                        lines
                    }
                    (was, _) => was,
                };
                if !matches!(was, Was::Lines(0, _)) {
                    self.bytes += was.cost();
                    newest.pages.push((page, was));
                }
            }
        }
        let number = self.next;
        self.next += 1;
        self.epochs.push_back(Epoch {
            number,
            pages: Vec::new(),
        });
        Mark {
            number,
            released: self.released.clone(),
        }
    }

    /// Saves a page before its first change in the newest epoch. `None` if it is not in use.
    pub(super) fn save(&mut self, page: u64, bytes: Option<&[u8]>) {
        if self.epochs.is_empty() {
            return;
        }
        let was = match (bytes, self.spare.pop()) {
            (None, _) => Was::Unused,
            (Some(bytes), None) => Was::Whole(bytes.into()),
            (Some(bytes), Some(mut spare)) => {
                spare.copy_from_slice(bytes);
                Was::Whole(spare)
            }
        };
        self.bytes += was.cost();
        self.open.insert(page, was);
        while self.bytes > self.bytes_max
            && let Some(oldest) = self.epochs.pop_front()
        {
            self.dropped_below = oldest.number + 1;
            self.drop_pages(oldest.pages.into_iter());
            if self.epochs.is_empty() {
                let open = std::mem::take(&mut self.open);
                self.drop_pages(open.into_iter());
            }
        }
    }

    fn drop_pages(&mut self, pages: impl Iterator<Item = (u64, Was)>) {
        self.bytes -= pages.map(|(_, was)| was.cost()).sum::<usize>();
    }

    /// Ends the epochs of released snapshots; their pages are merged into the epoch before.
    pub(super) fn forget_released<'a>(&mut self, now: &impl Fn(u64) -> Option<&'a [u8]>) {
        let released = std::mem::take(&mut *lock(&self.released));
        for number in released {
            let Ok(index) = self.index(number) else {
                continue;
            };
            let is_newest = index + 1 == self.epochs.len();
            let ended = self.epochs.remove(index).map(|epoch| epoch.pages);
            let ended = ended.unwrap_or_default();
            let before = index.checked_sub(1).and_then(|i| self.epochs.get_mut(i));
            let Some(before) = before else {
                self.drop_pages(ended.into_iter());
                if is_newest {
                    let open = std::mem::take(&mut self.open);
                    self.drop_pages(open.into_iter());
                }
                continue;
            };
            if is_newest {
                for (page, was) in std::mem::take(&mut before.pages) {
                    self.bytes -= was.cost();
                    let next = self.open.remove(&page);
                    self.bytes -= next.as_ref().map_or(0, Was::cost);
                    // A page that has not changed since holds its content at that time.
                    let whole = || now(page).map_or(Was::Unused, |now| Was::Whole(now.into()));
                    let was = was.before(next.unwrap_or_else(whole));
                    self.bytes += was.cost();
                    self.open.insert(page, was);
                }
                continue;
            }
            let mut pages: HashMap<u64, Was> =
                std::mem::take(&mut before.pages).into_iter().collect();
            for (page, next) in ended {
                self.bytes -= next.cost();
                match pages.entry(page) {
                    Entry::Occupied(mut entry) => {
                        let was = std::mem::replace(entry.get_mut(), Was::Unused);
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
            before.pages = pages.into_iter().collect();
        }
    }

    fn index(&self, number: u64) -> Result<usize, usize> {
        self.epochs
            .binary_search_by_key(&number, |epoch| epoch.number)
    }

    /// The number of epochs to undo, with [`History::undo`], to get back to a snapshot.
    pub(super) fn epochs_since(&self, mark: &Mark) -> Result<usize, RestoreError> {
        if !Arc::ptr_eq(&mark.released, &self.released) {
            return Err(RestoreError::Foreign);
        }
        match self.index(mark.number) {
            Ok(index) => Ok(self.epochs.len() - index),
            Err(_) if mark.number < self.dropped_below => Err(RestoreError::Dropped),
            Err(_) => Err(RestoreError::Undone),
        }
    }

    /// Takes the changes of the newest epoch, and ends it unless it is the `last` to undo.
    pub(super) fn undo(&mut self, last: bool) -> Vec<(u64, Was)> {
        let pages: Vec<(u64, Was)> = self.open.drain().collect();
        self.bytes -= pages.iter().map(|(_, was)| was.cost()).sum::<usize>();
        if !last {
            self.epochs.pop_back();
            if let Some(newest) = self.epochs.back_mut() {
                self.open.extend(newest.pages.drain(..));
            }
        }
        pages
    }
}
