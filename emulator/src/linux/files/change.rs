//! What changes directories and attributes: making, removing, renaming, linking. On the host if
//! the process may write there, else in memory.

use super::attributes::{Attributes, S_IFDIR, S_IFLNK, Time};
use super::inode::InodeRef;
use super::special::is_special;
use super::{Answer, Entry, Errno, Files, Node, Place, join, parent};
use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

impl Files {
    /// Is what changes at this path changed on the host?
    pub(super) fn on_host(&self, path: &[u8]) -> bool {
        self.allow_write
            && !is_special(path)
            && !self.entries.contains_key(path)
            && self.is_of_host(path)
    }

    /// May the process change what is in a directory?
    pub(super) fn check_may_change(&self, directory: &[u8]) -> Answer<()> {
        let node = self.node(directory);
        let path = directory.to_vec();
        let is_made_up = matches!(node, Node::Special(_));
        let attributes = self.attributes(&Place { path, node });
        if is_made_up || !self.allows(&attributes, 3) {
            return Err(Errno::EACCES);
        }
        Ok(())
    }

    /// A file of the host is from now on one in memory.
    pub(super) fn copy_up(&mut self, path: &[u8], with_content: bool) -> Answer<InodeRef> {
        let node = self.node(path);
        let place = Place {
            path: path.to_vec(),
            node,
        };
        let from = self.attributes(&place);
        let inode = self.new_inode(from.mode);
        if with_content {
            if from.size > self.budget.left() {
                return Err(Errno::ENOSPC);
            }
            let bytes = fs::read(self.host(path))?;
            inode.borrow_mut().write(0, &bytes)?;
        }
        {
            let mut inode = inode.borrow_mut();
            (inode.uid, inode.gid) = (from.uid, from.gid);
            (inode.accessed, inode.modified) = (from.accessed, from.modified);
        }
        self.insert(place.path, inode.clone());
        Ok(inode)
    }

    fn remove(&mut self, path: &[u8]) {
        self.entries.insert(path.to_vec(), Entry::Removed);
    }

    /// Where something new may be made.
    fn new_place(&self, base: &[u8], path: &[u8]) -> Answer<Vec<u8>> {
        let place = self.resolve(base, path, false)?;
        if !matches!(place.node, Node::Missing) {
            return Err(Errno::EEXIST);
        }
        self.check_may_change(parent(&place.path))?;
        Ok(place.path)
    }

    pub(in crate::linux) fn mkdir(&mut self, base: &[u8], path: &[u8], mode: u32) -> Answer {
        let path = self.new_place(base, path)?;
        let mode = mode & 0o1777 & !self.umask;
        if self.on_host(&path) {
            fs::DirBuilder::new().mode(mode).create(self.host(&path))?;
        } else {
            let inode = self.new_inode(S_IFDIR | mode);
            self.insert(path, inode);
        }
        Ok(0)
    }

    pub(in crate::linux) fn symlink(&mut self, target: &[u8], base: &[u8], path: &[u8]) -> Answer {
        if target.is_empty() {
            return Err(Errno::ENOENT);
        }
        let path = self.new_place(base, path)?;
        if self.on_host(&path) {
            use std::os::unix::ffi::OsStrExt;
            symlink(std::ffi::OsStr::from_bytes(target), self.host(&path))?;
        } else {
            let inode = self.new_inode(S_IFLNK | 0o777);
            inode.borrow_mut().write(0, target)?;
            self.insert(path, inode);
        }
        Ok(0)
    }

    /// A second name.
    pub(in crate::linux) fn link(&mut self, from: Place, base: &[u8], path: &[u8]) -> Answer {
        if from.node.is_directory() {
            return Err(Errno::EPERM);
        }
        let path = self.new_place(base, path)?;
        if self.on_host(&path) && self.on_host(&from.path) {
            fs::hard_link(self.host(&from.path), self.host(&path))?;
            return Ok(0);
        }
        let inode = self.in_memory(from)?;
        inode.borrow_mut().links += 1;
        self.insert(path, inode);
        Ok(0)
    }

    /// The inode of what can be in memory.
    fn in_memory(&mut self, place: Place) -> Answer<InodeRef> {
        match place.node {
            Node::Memory(inode) => Ok(inode),
            Node::Host(metadata) if metadata.is_file() => self.copy_up(&place.path, true),
            _ => Err(Errno::EXDEV),
        }
    }

    /// `unlink`, or `rmdir` if it is to be a directory.
    pub(in crate::linux) fn unlink(&mut self, base: &[u8], path: &[u8], directory: bool) -> Answer {
        if directory && path.ends_with(b".") {
            return Err(Errno::EINVAL);
        }
        let place = self.find(base, path, false)?;
        self.check_may_change(parent(&place.path))?;
        match (place.node.is_directory(), directory) {
            (true, false) => return Err(Errno::EISDIR),
            (false, true) => return Err(Errno::ENOTDIR),
            (true, true) if !self.list(&place.path)?.is_empty() => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        self.unlink_place(&place)
    }

    fn unlink_place(&mut self, place: &Place) -> Answer {
        match &place.node {
            Node::Special(_) => return Err(Errno::EACCES),
            Node::Memory(inode) => {
                let mut inode = inode.borrow_mut();
                inode.links = inode.links.saturating_sub(1);
            }
            _ if self.on_host(&place.path) => {
                let host = self.host(&place.path);
                if place.node.is_directory() {
                    fs::remove_dir(host)?;
                } else {
                    fs::remove_file(host)?;
                }
                return Ok(0);
            }
            _ => {}
        }
        self.remove(&place.path);
        Ok(0)
    }

    /// `rename`; `no_replace` as `RENAME_NOREPLACE`. A directory of the host cannot be renamed in
    /// memory (`EXDEV`, as with Linux' overlayfs).
    pub(in crate::linux) fn rename(
        &mut self,
        from: (&[u8], &[u8]),
        to: (&[u8], &[u8]),
        no_replace: bool,
    ) -> Answer {
        let from = self.find(from.0, from.1, false)?;
        let to = self.resolve(to.0, to.1, false)?;
        self.check_may_change(parent(&from.path))?;
        self.check_may_change(parent(&to.path))?;
        let exists = !matches!(to.node, Node::Missing);
        if exists && no_replace {
            return Err(Errno::EEXIST);
        }
        if from.path == to.path {
            return Ok(0);
        }
        let is_directory = from.node.is_directory();
        if is_directory && to.path.starts_with(&join(&from.path, b"")) {
            return Err(Errno::EINVAL);
        }
        match (is_directory, to.node.is_directory()) {
            (true, false) if exists => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            (true, true) if !self.list(&to.path)?.is_empty() => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        if self.on_host(&from.path) && self.on_host(&to.path) {
            fs::rename(self.host(&from.path), self.host(&to.path))?;
            return Ok(0);
        }
        let (old, new) = (from.path.clone(), to.path.clone());
        let inode = match from.node {
            Node::Host(ref metadata) if metadata.is_symlink() => {
                let target = from.node.link(self, &old).unwrap_or(Err(Errno::EIO))?;
                let inode = self.new_inode(S_IFLNK | 0o777);
                inode.borrow_mut().write(0, &target)?;
                inode
            }
            _ => self.in_memory(from)?,
        };
        if exists {
            self.unlink_place(&to)?;
        }
        // What is in a directory of memory goes with it.
        let prefix = join(&old, b"");
        let inside: Vec<Vec<u8>> = self
            .entries
            .range(prefix.clone()..)
            .map(|(path, _)| path.clone())
            .take_while(|path| path.starts_with(&prefix))
            .collect();
        for path in inside {
            if let Some(entry) = self.entries.remove(&path) {
                self.entries
                    .insert(join(&new, &path[prefix.len()..]), entry);
            }
        }
        self.remove(&old);
        inode.borrow_mut().changed = self.now;
        self.insert(new, inode);
        Ok(0)
    }

    /// Changes attributes of a file by `change`, on the host by `on_host`.
    fn change(
        &mut self,
        place: Place,
        change: impl FnOnce(&mut super::Inode),
        on_host: impl FnOnce(&std::path::Path) -> std::io::Result<()>,
    ) -> Answer {
        let owner = self.attributes(&place).uid;
        if self.identity.uid != 0 && self.identity.uid != owner {
            return Err(Errno::EPERM);
        }
        match &place.node {
            Node::Special(_) => return Ok(0),
            Node::Host(_) if self.on_host(&place.path) => {
                on_host(&self.host(&place.path))?;
                return Ok(0);
            }
            // Only files are copied.
            Node::Host(metadata) if !metadata.is_file() => return Err(Errno::EPERM),
            _ => {}
        }
        let now = self.now;
        let inode = self.in_memory(place)?;
        change(&mut inode.borrow_mut());
        inode.borrow_mut().changed = now;
        Ok(0)
    }

    pub(in crate::linux) fn chmod(&mut self, place: Place, mode: u32) -> Answer {
        let mode = mode & 0o7777;
        self.change(
            place,
            |inode| inode.mode = inode.mode & !0o7777 | mode,
            |host| fs::set_permissions(host, Permissions::from_mode(mode)),
        )
    }

    /// `None` leaves a time as it is.
    pub(in crate::linux) fn set_times(
        &mut self,
        place: Place,
        accessed: Option<Time>,
        modified: Option<Time>,
    ) -> Answer {
        self.change(
            place,
            |inode| {
                inode.accessed = accessed.unwrap_or(inode.accessed);
                inode.modified = modified.unwrap_or(inode.modified);
            },
            |host| {
                let mut times = FileTimes::new();
                if let Some(time) = accessed.and_then(system_time) {
                    times = times.set_accessed(time);
                }
                if let Some(time) = modified.and_then(system_time) {
                    times = times.set_modified(time);
                }
                File::open(host)?.set_times(times)
            },
        )
    }

    /// Only to what it is already, unless the process is root's; then only in memory.
    pub(in crate::linux) fn chown(&mut self, place: Place, uid: u32, gid: u32) -> Answer {
        let Attributes {
            uid: old_uid,
            gid: old_gid,
            ..
        } = self.attributes(&place);
        let keep = |new: u32, old| if new == u32::MAX { old } else { new };
        let (uid, gid) = (keep(uid, old_uid), keep(gid, old_gid));
        if (uid, gid) == (old_uid, old_gid) {
            return Ok(0);
        }
        if self.identity.uid != 0 || self.on_host(&place.path) {
            return Err(Errno::EPERM);
        }
        self.change(
            place,
            |inode| (inode.uid, inode.gid) = (uid, gid),
            |_| Ok(()),
        )
    }

    pub(in crate::linux) fn truncate(&mut self, place: Place, size: u64) -> Answer {
        if place.node.is_directory() {
            return Err(Errno::EISDIR);
        }
        if !self.allows(&self.attributes(&place), 2) {
            return Err(Errno::EACCES);
        }
        if matches!(place.node, Node::Host(_)) && self.on_host(&place.path) {
            let file = fs::OpenOptions::new()
                .write(true)
                .open(self.host(&place.path))?;
            file.set_len(size)?;
            return Ok(0);
        }
        let now = self.now;
        let inode = self.in_memory(place)?;
        let mut inode = inode.borrow_mut();
        inode.resize(size)?;
        (inode.modified, inode.changed) = (now, now);
        Ok(0)
    }
}

fn system_time(time: Time) -> Option<SystemTime> {
    let since = Duration::new(u64::try_from(time.seconds).ok()?, time.nanoseconds);
    SystemTime::UNIX_EPOCH.checked_add(since)
}
