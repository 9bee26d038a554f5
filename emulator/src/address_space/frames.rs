//! The frames of all spaces and objects: their bytes, how often each is in use, and which of those
//! that are shared have decoded instructions. Not here: which page has which frame (`table`).

use super::difference::Difference;
use super::history::{EarlierContent, History, RestoreError, SnapshotGuard};
use super::limits::PAGE_SIZE;
use hashbrown::{HashMap, HashSet};

const PAGE: usize = PAGE_SIZE as usize;

#[derive(Clone, Debug)]
pub(super) struct Frames {
    /// The bytes of all frames, contiguous, so that one bounds check is enough for an access.
    bytes: Vec<u8>,
    /// The number of live entries for each frame; 0 if it is unused.
    owners: Vec<u32>,
    free: Vec<u32>,
    in_use: usize,
    max: usize,
    /// The earlier content of frames, for snapshots.
    pub(super) history: Box<History>,
    /// Frames of objects from which instructions were decoded, and the version of each: another
    /// number after each change.
    code: HashMap<u32, u64>,
    /// The newest version.
    version: u64,
    /// Tables are being restored: frames that become unused were so at the snapshot.
    is_restoring: bool,
    /// Frames became used or unused since tables are being restored.
    free_is_stale: bool,
}

impl Frames {
    pub(super) fn new(max: usize) -> Frames {
        Frames {
            bytes: Vec::new(),
            owners: Vec::new(),
            free: Vec::new(),
            in_use: 0,
            max: max.min(u32::MAX as usize - 1),
            history: Box::default(),
            code: HashMap::new(),
            version: 0,
            is_restoring: false,
            free_is_stale: false,
        }
    }

    /// Makes all memory one range of frames that are in use, all zeros. Returns their number.
    pub(super) fn make_flat(&mut self, bytes: usize) -> usize {
        let count = bytes.div_ceil(PAGE);
        self.bytes = vec![0; count * PAGE];
        self.owners = vec![1; count];
        (self.in_use, self.max) = (count, count);
        count
    }

    #[inline(always)]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    #[inline(always)]
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// The number of frames in use.
    pub(super) fn in_use(&self) -> usize {
        self.in_use
    }

    /// Whether there is room for `new` more frames.
    pub(super) fn has_room(&self, new: usize) -> bool {
        self.in_use + new <= self.max
    }

    /// The offset of a frame in [`Frames::bytes`].
    pub(super) fn base(frame: u32) -> usize {
        frame as usize * PAGE
    }

    pub(super) fn get(&self, frame: u32) -> &[u8] {
        &self.bytes[Frames::base(frame)..][..PAGE]
    }

    pub(super) fn get_mut(&mut self, frame: u32) -> &mut [u8] {
        &mut self.bytes[Frames::base(frame)..][..PAGE]
    }

    pub(super) fn copy(&mut self, from: u32, to: u32) {
        let from = Frames::base(from);
        self.bytes.copy_within(from..from + PAGE, Frames::base(to));
    }

    /// Whether the frame has no other owner.
    pub(super) fn is_alone(&self, frame: u32) -> bool {
        self.owners[frame as usize] == 1
    }

    /// A frame with one owner and undefined content, which the caller fills. `None` if there is no
    /// room.
    pub(super) fn allocate(&mut self) -> Option<u32> {
        if !self.has_room(1) {
            return None;
        }
        let frame = match self.free.pop() {
            Some(frame) => frame,
            None => {
                let frame = self.owners.len() as u32;
                self.owners.push(0);
                self.bytes.resize(self.bytes.len() + PAGE, 0);
                frame
            }
        };
        self.save(frame);
        self.owners[frame as usize] = 1;
        self.in_use += 1;
        Some(frame)
    }

    /// Adds an owner.
    pub(super) fn retain(&mut self, frame: u32) {
        let owners = &mut self.owners[frame as usize];
        *owners += 1;
        if *owners == 1 {
            self.in_use += 1;
            self.free_is_stale = true;
        }
    }

    /// Removes an owner.
    pub(super) fn release(&mut self, frame: u32) {
        if self.is_alone(frame) {
            if self.is_restoring {
                self.free_is_stale = true;
            } else {
                self.save(frame);
                self.free.push(frame);
            }
            self.code.remove(&frame);
            self.in_use -= 1;
        }
        self.owners[frame as usize] -= 1;
    }

    /// Saves the content of a frame that is about to be written, allocated or released. Must be
    /// called at least once after each snapshot.
    #[inline]
    pub(super) fn save(&mut self, frame: u32) {
        if !self.history.is_empty() {
            self.save_for_snapshots(frame);
        }
    }

    #[cold]
    fn save_for_snapshots(&mut self, frame: u32) {
        if self.history.is_saved(frame) {
            return;
        }
        self.forget_released();
        // That may have changed which snapshot is the newest.
        if !self.history.is_saved(frame) {
            let bytes = used(&self.owners, &self.bytes, frame);
            self.history.save(frame, bytes);
        }
    }

    fn forget_released(&mut self) {
        let now = |frame| used(&self.owners, &self.bytes, frame);
        self.history.forget_released(&now);
    }

    /// Starts a snapshot of all frames.
    pub(super) fn mark(&mut self) -> SnapshotGuard {
        let now = |frame| used(&self.owners, &self.bytes, frame);
        self.history.mark(now)
    }

    /// Whether a snapshot is held.
    #[cfg(test)]
    pub(super) fn has_snapshots(&mut self) -> bool {
        self.forget_released();
        !self.history.is_empty()
    }

    /// Restores the content of all frames to a snapshot. Returns the frames that changed since.
    pub(super) fn undo(&mut self, mark: &SnapshotGuard) -> Result<HashSet<u32>, RestoreError> {
        self.forget_released();
        let mut changed = HashSet::new();
        for left in (0..self.history.epochs_since(mark)?).rev() {
            for (frame, was) in self.history.undo(left == 0) {
                changed.insert(frame);
                self.put_back(frame, &was);
            }
        }
        Ok(changed)
    }

    /// What has changed since the newest snapshot, which is `mark`'s.
    pub(super) fn difference(&mut self, mark: &SnapshotGuard) -> Result<Difference, RestoreError> {
        self.forget_released();
        if self.history.epochs_since(mark)? != 1 {
            return Err(RestoreError::NotNewest);
        }
        let changed = self.history.newest().into_iter();
        let both = changed.filter_map(|(frame, was)| match was {
            EarlierContent::Whole(was) => Some((frame, &**was, self.get(frame))),
            // Only a frame that is in use has a content; in the newest epoch there are no lines.
            EarlierContent::Unused | EarlierContent::Lines(..) => None,
        });
        Ok(Difference::of(both))
    }

    /// Applies a difference, and adds the frames that it changes to `changed`.
    pub(super) fn apply(&mut self, difference: &Difference, changed: &mut HashSet<u32>) {
        for frame in difference.frames() {
            self.save(frame);
            changed.insert(frame);
        }
        difference.apply(&mut self.bytes);
    }

    /// Restores the owners of frames, after [`Frames::undo`]: `tables` acquires the tables of that
    /// time and releases those of now.
    pub(super) fn restore_owners<T>(&mut self, tables: impl FnOnce(&mut Frames) -> T) -> T {
        self.is_restoring = true;
        let done = tables(self);
        self.is_restoring = false;
        if std::mem::take(&mut self.free_is_stale) {
            let (all, owners) = (0..self.owners.len() as u32, &self.owners);
            let unused = all.rev().filter(|&frame| owners[frame as usize] == 0);
            self.free.clear();
            self.free.extend(unused);
        }
        done
    }

    fn put_back(&mut self, frame: u32, was: &EarlierContent) {
        match was {
            EarlierContent::Unused => {}
            EarlierContent::Whole(bytes) => self.get_mut(frame).copy_from_slice(bytes),
            EarlierContent::Lines(mask, bytes) => {
                EarlierContent::put_lines(*mask, bytes, self.get_mut(frame))
            }
        }
    }

    /// Whether instructions were decoded from any frame of an object.
    pub(super) fn has_code(&self) -> bool {
        !self.code.is_empty()
    }

    /// Notes that instructions were decoded from a frame of an object. Returns its version.
    pub(super) fn set_code(&mut self, frame: u32) -> u64 {
        *self.code.entry(frame).or_insert_with(|| {
            self.version += 1;
            self.version
        })
    }

    /// The version of a frame of an object with decoded instructions.
    pub(super) fn code_version(&self, frame: u32) -> Option<u64> {
        self.code.get(&frame).copied()
    }

    /// Gives a frame another version, if instructions were decoded from it.
    pub(super) fn code_changed(&mut self, frame: u32) {
        if let Some(version) = self.code.get_mut(&frame) {
            self.version += 1;
            *version = self.version;
        }
    }
}

#[cfg(test)]
impl Frames {
    pub(super) fn is_used(&self, frame: u32) -> bool {
        self.owners[frame as usize] > 0
    }

    /// Checks the owners of all frames, and what follows from them.
    pub(super) fn audit(&self, owners: &HashMap<u32, u32>) {
        for (frame, &count) in (0..).zip(&self.owners) {
            assert_eq!(count, owners.get(&frame).copied().unwrap_or(0), "{frame}");
            let is_free = self.free.iter().filter(|&&free| free == frame).count();
            assert_eq!(is_free, usize::from(count == 0), "{frame}");
        }
        assert_eq!(self.in_use, owners.len());
        assert_eq!(self.bytes.len(), self.owners.len() * PAGE);
    }
}

/// The content of a frame that is in use.
fn used<'a>(owners: &[u32], bytes: &'a [u8], frame: u32) -> Option<&'a [u8]> {
    if *owners.get(frame as usize)? == 0 {
        return None;
    }
    bytes.get(Frames::base(frame)..)?.get(..PAGE)
}
