//! Files in memory, and the limit of their total size.

use super::attributes::{S_IFDIR, S_IFIFO, S_IFMT, Time};
use super::data::Data;
use super::pipe::{Fifo, PipeRef};
use super::{Answer, Errno, Files, ResolvedPath};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// A file that can have several names, or none while it is open.
pub(in crate::linux) type InodeRef = Rc<RefCell<Inode>>;

/// Seals of files in memory (Linux 6.12 `include/uapi/linux/fcntl.h`).
pub(in crate::linux) mod seal {
    pub(in crate::linux) const SEAL: u32 = 1;
    pub(in crate::linux) const SHRINK: u32 = 2;
    pub(in crate::linux) const GROW: u32 = 4;
    pub(in crate::linux) const WRITE: u32 = 8;
    pub(in crate::linux) const FUTURE_WRITE: u32 = 16;
    pub(in crate::linux) const EXEC: u32 = 32;
}

/// What a file in memory counts besides its bytes.
const INODE_BYTES: u64 = 256;
/// What a name counts besides its path.
const NAME_BYTES: u64 = 64;

/// Bytes left for files in memory and their names.
#[derive(Clone, Debug)]
pub(in crate::linux) struct Budget(Rc<Account>);

#[derive(Debug)]
struct Account {
    left: Cell<u64>,
    /// Whether something was refused.
    was_full: Cell<bool>,
}

impl Budget {
    pub(super) fn new(bytes: u64) -> Budget {
        Budget(Rc::new(Account {
            left: Cell::new(bytes),
            was_full: Cell::new(false),
        }))
    }

    /// The number of bytes left.
    pub(in crate::linux) fn left(&self) -> u64 {
        self.0.left.get()
    }

    /// Whether something was refused since this was last asked.
    pub(in crate::linux) fn take_full(&self) -> bool {
        self.0.was_full.take()
    }

    /// Checks that so many bytes are left.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub(super) fn check(&self, bytes: u64) -> Answer<()> {
        if bytes > self.left() {
            self.0.was_full.set(true);
            return Err(Errno::ENOSPC);
        }
        Ok(())
    }

    /// Checks that there is room for a file or a name at a path.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub(super) fn check_new(&self, path: &[u8]) -> Answer<()> {
        self.check(INODE_BYTES + Budget::of_name(path))
    }

    /// What a name counts.
    pub(super) fn of_name(path: &[u8]) -> u64 {
        NAME_BYTES + path.len() as u64
    }

    pub(super) fn take(&self, bytes: u64) {
        self.0.left.set(self.left().saturating_sub(bytes));
    }

    pub(super) fn give(&self, bytes: u64) {
        self.0.left.set(self.left().saturating_add(bytes));
    }
}

/// A file in memory.
#[derive(Debug)]
pub(in crate::linux) struct Inode {
    pub(in crate::linux) device: u64,
    pub(in crate::linux) number: u64,
    /// File type and permissions.
    pub(in crate::linux) mode: u32,
    pub(in crate::linux) links: u32,
    /// Which device it is, if it is one.
    pub(in crate::linux) rdev: u64,
    pub(in crate::linux) uid: u32,
    pub(in crate::linux) gid: u32,
    pub(in crate::linux) accessed: Time,
    pub(in crate::linux) modified: Time,
    pub(in crate::linux) changed: Time,
    /// What may no longer be done with it: bits of [`seal`].
    pub(in crate::linux) seals: u32,
    /// The content of a file, or the target of a link. Copies of the inode share it until it is
    /// written.
    data: Data,
    budget: Budget,
    /// The pipe of a FIFO.
    pub(super) fifo: Fifo,
}

impl Inode {
    /// A copy of the file whose bytes count in another budget, which includes them already.
    pub(super) fn copy(&self, budget: &Budget) -> Inode {
        Inode {
            device: self.device,
            number: self.number,
            mode: self.mode,
            links: self.links,
            rdev: self.rdev,
            uid: self.uid,
            gid: self.gid,
            accessed: self.accessed,
            modified: self.modified,
            changed: self.changed,
            seals: self.seals,
            data: self.data.clone(),
            budget: budget.clone(),
            // The copies of its ends bring their pipe.
            fifo: Fifo::default(),
        }
    }

    pub(super) fn is_directory(&self) -> bool {
        self.mode & S_IFMT == S_IFDIR
    }

    pub(in crate::linux) fn data(&self) -> &Data {
        &self.data
    }

    /// Extends the file with a hole, or truncates it.
    ///
    /// # Errors
    /// If it would be larger than a file can be (`EFBIG`).
    pub(in crate::linux) fn resize(&mut self, size: u64) -> Answer<()> {
        self.with_kept(|data| data.resize(size))
    }

    /// Makes a hole of a range. The size stays.
    pub(in crate::linux) fn punch(&mut self, range: Range<u64>) {
        // This cannot fail: it keeps less than before.
        let _ = self.with_kept(|data| {
            data.punch(range);
            Ok(())
        });
    }

    /// Makes room for a range. The size stays.
    ///
    /// # Errors
    /// Like [`Inode::write`].
    pub(in crate::linux) fn allocate(&mut self, range: Range<u64>) -> Answer<()> {
        let range = Data::range(range.start, range.end - range.start)?;
        // First, because what is needed is counted page by page.
        let size = range.end - range.start;
        self.budget.check(size.saturating_sub(self.data.kept()))?;
        self.budget.check(self.data.growth(&range))?;
        self.with_kept(|data| {
            data.allocate(range);
            Ok(())
        })
    }

    /// Changes the bytes, and counts those that are kept afterwards.
    fn with_kept(&mut self, change: impl FnOnce(&mut Data) -> Answer<()>) -> Answer<()> {
        let old = self.data.kept();
        let done = change(&mut self.data);
        self.budget.give(old);
        self.budget.take(self.data.kept());
        done
    }

    /// Writes at a position; a gap before it becomes a hole.
    ///
    /// # Errors
    /// If the files in memory would get too large (`ENOSPC`), or this one larger than a file can be
    /// (`EFBIG`).
    pub(in crate::linux) fn write(&mut self, position: u64, bytes: &[u8]) -> Answer<()> {
        let range = Data::range(position, bytes.len() as u64)?;
        let growth = self.data.growth(&range);
        self.budget.check(growth)?;
        self.data.write(position, bytes)?;
        self.budget.take(growth);
        Ok(())
    }

    /// Reads at a position; returns the number of bytes.
    pub(in crate::linux) fn read(&self, position: u64, buffer: &mut [u8]) -> usize {
        self.data.read(position, buffer)
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        self.budget.give(INODE_BYTES + self.data.kept());
    }
}

/// The first inode number of files in memory: larger than any on the host's file systems.
const INODES_FROM: u64 = 1 << 40;

impl Files {
    /// The pipe of a file in memory, if that is a FIFO.
    pub(in crate::linux) fn pipe_of(inode: &InodeRef) -> Option<PipeRef> {
        let mut inode = inode.borrow_mut();
        (inode.mode & S_IFMT == S_IFIFO).then(|| inode.fifo.pipe())
    }

    /// Creates a file that has no name yet, for a directory: it is on the directory's device, and
    /// in its group if the directory passes that on.
    pub(in crate::linux) fn new_inode(&mut self, mode: u32, directory: &[u8]) -> InodeRef {
        const S_ISGID: u32 = 0o2000;
        self.inodes += 1;

        let path = directory.to_vec();
        let node = self.node(directory);
        let parent = self.attributes(&ResolvedPath { path, node });

        // A set-group-ID folder passes on its group, and to folders also the bit (inode(7)).
        let passes_on = parent.mode & S_ISGID != 0;
        let is_directory = mode & S_IFMT == S_IFDIR;
        let inherited = if passes_on && is_directory {
            S_ISGID
        } else {
            0
        };

        self.budget.take(INODE_BYTES);
        Rc::new(RefCell::new(Inode {
            device: parent.device,
            number: INODES_FROM + self.inodes,
            mode: mode | inherited,
            links: 1,
            rdev: 0,
            uid: self.own.identity.user.file,
            gid: if passes_on {
                parent.gid
            } else {
                self.own.identity.group.file
            },
            accessed: self.now,
            modified: self.now,
            changed: self.now,
            // Only `memfd_create` makes files that can be sealed.
            seals: seal::SEAL,
            data: Data::default(),
            budget: self.budget.clone(),
            fifo: Fifo::default(),
        }))
    }
}
