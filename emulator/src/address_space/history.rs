//! What pages held when snapshots were taken, so that memory can go back to one.
//!
//! For each snapshot there is an *epoch*: what changed between it and the next one. Of the newest,
//! whole pages are kept, each copied before it is written first; when the next one begins, only
//! the lines that differ. Going back undoes epoch by epoch. So a snapshot costs nothing for pages
//! that are not written, and who keeps none pays nothing.

use super::PAGE_SIZE;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that are kept for all snapshots together at most, unless told otherwise.
pub const HISTORY_BYTES_MAX: usize = 256 << 20;
/// Copies of pages that are kept to be used again.
const SPARE_MAX: usize = 64;
/// Bytes of a line: the 64th part of a page.
const LINE: usize = PAGE_SIZE as usize / 64;
/// What a page costs besides its bytes, about.
const OVERHEAD: usize = 64;

/// A page as it was.
#[derive(Debug)]
pub(super) enum Was {
    /// Not in use.
    Unused,
    /// This.
    Whole(Box<[u8]>),
    /// What it was at the epoch's end, but for these lines: a bit and [`LINE`] bytes for each.
    Lines(u64, Box<[u8]>),
}

impl Was {
    /// The lines that differ from `now`.
    fn lines(was: &[u8], now: &[u8]) -> Was {
        let (was, now) = (was.as_chunks::<LINE>().0, now.as_chunks::<LINE>().0);
        let mut mask = 0;
        for (index, (was, now)) in was.iter().zip(now).enumerate() {
            // Without a branch, and without a call, for each word.
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

    /// Makes lines of a page what they were.
    pub(super) fn put_lines(mask: u64, from: &[u8], page: &mut [u8]) {
        for (from, index) in from.chunks_exact(LINE).zip(ones(mask)) {
            page[index * LINE..][..LINE].copy_from_slice(from);
        }
    }

    /// After an epoch in which the page was this, there was another one at whose begin it was
    /// `next`: what it was when both are one.
    fn before(self, next: Was) -> Was {
        let Was::Lines(mask, bytes) = self else {
            return self;
        };
        match next {
            // It was in use when the other epoch began.
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

    /// What it takes to keep it.
    fn cost(&self) -> usize {
        OVERHEAD
            + match self {
                Was::Unused => 0,
                Was::Whole(bytes) | Was::Lines(_, bytes) => bytes.len(),
            }
    }
}

/// The numbers of the bits that are set.
fn ones(mask: u64) -> impl Iterator<Item = usize> {
    let lowest = |left: &u64| Some(left & left.wrapping_sub(1));
    let all = std::iter::successors(Some(mask), lowest);
    all.take_while(|&left| left != 0)
        .map(|left| left.trailing_zeros() as usize)
}

/// Why there is no way back to a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RestoreError {
    /// Too much changed since: what it takes was dropped, the oldest snapshots first.
    Dropped,
    /// An older one was restored meanwhile.
    Undone,
    /// It was taken of another memory.
    Foreign,
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RestoreError::Dropped => "the snapshot was dropped: too much has changed since",
            RestoreError::Undone => "an older snapshot was restored since this one was taken",
            RestoreError::Foreign => "the snapshot was taken of another memory",
        })
    }
}

impl std::error::Error for RestoreError {}

/// The numbers of snapshots that nobody holds any more, until the history looks.
type Released = Arc<Mutex<Vec<u64>>>;

fn lock(released: &Released) -> MutexGuard<'_, Vec<u64>> {
    released.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As long as it lives one can go back to where it was made.
#[derive(Debug)]
pub(super) struct Mark {
    /// Grows from snapshot to snapshot; no two of a history have the same.
    number: u64,
    released: Released,
}

impl Drop for Mark {
    fn drop(&mut self) {
        lock(&self.released).push(self.number);
    }
}

/// What changed from one snapshot to the next.
#[derive(Debug)]
struct Epoch {
    number: u64,
    /// By page. Empty in the newest epoch: [`History::open`] has it.
    pages: Vec<(u64, Was)>,
}

/// What changed since the oldest snapshot that is held.
#[derive(Debug)]
pub(super) struct History {
    /// One for each snapshot that is held, the newest last.
    epochs: VecDeque<Epoch>,
    /// The pages that changed in the newest epoch; no lines.
    open: HashMap<u64, Was>,
    spare: Vec<Box<[u8]>>,
    /// The number that the next snapshot gets.
    next: u64,
    /// Snapshots below this number were dropped, if they are not held.
    dropped_below: u64,
    /// What all epochs cost.
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

/// A copy of a memory has no snapshots: those that are held are of the original.
impl Clone for History {
    fn clone(&self) -> Self {
        History {
            bytes_max: self.bytes_max,
            ..History::default()
        }
    }
}

impl History {
    /// Is there no snapshot?
    pub(super) fn is_empty(&self) -> bool {
        self.epochs.is_empty()
    }

    /// What is kept for all snapshots, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Is it known what the page was when the newest epoch began?
    pub(super) fn is_saved(&self, page: u64) -> bool {
        self.open.contains_key(&page)
    }

    /// Begins an epoch. `now` gives what a page holds, if it is in use.
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

    /// A page is about to change for the first time in the newest epoch; it holds these bytes, or
    /// is not in use.
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

    /// Ends the epochs of snapshots that nobody holds: what they have serves the one before.
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
                    // What did not change since is what it was.
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

    /// Ends all epochs since a snapshot, and begins its own anew. Gives how many have to be
    /// undone, by [`History::undo`].
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

    /// Takes what changed in the newest epoch; and ends it, if it is not the `last` to be undone.
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
