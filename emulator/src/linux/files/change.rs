//! Changes of files: copying those of the host, attributes, sizes. Changes are made on the host if
//! the process may write there, otherwise in memory. Not here: names (`names`).

use super::attributes::{Attributes, S_IFMT, S_IFREG, Time};
use super::description::{Kind, Shared};
use super::host::{Host, OpenAccess};
use super::inode::InodeRef;
use super::names::is_removed;
use super::special::is_special;
use super::{Answer, Errno, Files, KEEP, Node, ResolvedPath, parent};
use crate::address_space::PAGE_SIZE;
use std::fs::{File, Metadata};
use std::io::Read;
use std::time::SystemTime;

impl Files {
    /// Whether any changes are made on the host.
    pub(in crate::linux) fn may_write_host(&self) -> bool {
        self.allow_write
    }

    /// Whether changes at this path are made on the host.
    pub(in crate::linux) fn on_host(&self, path: &[u8]) -> bool {
        self.allow_write
            && !is_special(path)
            && !self.entries.contains_key(path)
            && self.is_of_host(path)
    }

    /// Checks that the process may change the content of a directory.
    pub(super) fn check_may_change(&self, directory: &[u8]) -> Answer<()> {
        let node = self.node(directory);
        let path = directory.to_vec();
        if is_removed(directory) || matches!(node, Node::Missing) {
            return Err(Errno::ENOENT);
        }
        if matches!(node, Node::Refused) {
            return Err(Errno::EACCES);
        }
        let is_made_up = matches!(node, Node::Special(_));
        let attributes = self.attributes(&ResolvedPath { path, node });
        if is_made_up || !self.allows(&attributes, 3) {
            return Err(Errno::EACCES);
        }
        Ok(())
    }

    /// Replaces the file or directory that was `seen` at a path of the host by a copy in memory,
    /// with the same inode number, under all of its names and in all open files.
    ///
    /// # Errors
    /// `ESTALE` if another file is there now, and the content is wanted.
    pub(super) fn copy_up(
        &mut self,
        path: &[u8],
        seen: &Metadata,
        with_content: bool,
    ) -> Answer<InodeRef> {
        let identity = super::attributes::identity(seen);
        let (is_directory, is_link) = (seen.is_dir(), seen.is_symlink());
        let from = Attributes::of_host(seen, self.owners);
        let inode = self.new_inode(from.mode, parent(path));

        // Not if all of it is replaced anyway.
        if with_content {
            let mut inode = inode.borrow_mut();
            if is_link {
                inode.write(0, &self.host.target_of(path, seen)?)?;
            } else {
                copy_content(&self.host.open(path, seen, OpenAccess::READ)?, &mut inode)?;
            }
        }

        {
            let mut inode = inode.borrow_mut();
            from.set(&mut inode);
            if is_directory {
                inode.links = 1;
            }
        }

        // From here on every name of the file leads to the copy.
        self.copied.insert(identity, inode.clone());
        if is_directory {
            return Ok(inode);
        }

        // Those that have the file open see the copy from now on.
        for files in self.others.values().chain([&self.own]) {
            for (_, open) in files.table.open() {
                become_copy(open, identity, &inode);
            }
        }

        self.newly_copied.push((identity, inode.clone()));
        Ok(inode)
    }

    /// The inode of a file, which is copied to memory if necessary.
    pub(super) fn in_memory(&mut self, resolved: ResolvedPath) -> Answer<InodeRef> {
        match resolved.node {
            Node::Memory(inode) => Ok(inode),
            Node::Host(metadata) if metadata.is_file() || metadata.is_symlink() => {
                self.copy_up(&resolved.path, &metadata, true)
            }
            _ => Err(Errno::EXDEV),
        }
    }

    /// Changes attributes of a file, in memory by `change` or on the host by `on_host`.
    fn change(
        &mut self,
        resolved: ResolvedPath,
        change: impl FnOnce(&mut super::Inode),
        on_host: impl FnOnce(&Host, &[u8]) -> std::io::Result<()>,
    ) -> Answer {
        match &resolved.node {
            Node::Refused => return Err(Errno::EACCES),
            Node::Special(_) | Node::Open(_) => return Ok(0),
            Node::Host(_) if self.on_host(&resolved.path) => {
                on_host(&self.host, &resolved.path)?;
                return Ok(0);
            }
            Node::Memory(inode) if self.stands_in(inode, &resolved.path) => {
                // The host's file and the copy that stands for it stay the same.
                on_host(&self.host, &resolved.path)?;
                let metadata = self.host.metadata(&resolved.path)?;
                Attributes::of_host(&metadata, self.owners).set(&mut inode.borrow_mut());
                return Ok(0);
            }
            _ => {}
        }

        // Otherwise the change is made to a copy in memory.
        let now = self.now;
        let inode = match &resolved.node {
            Node::Host(metadata) if metadata.is_dir() => {
                self.copy_up(&resolved.path, metadata, false)?
            }
            _ => self.in_memory(resolved)?,
        };

        change(&mut inode.borrow_mut());
        inode.borrow_mut().changed = now;
        Ok(0)
    }

    pub(in crate::linux) fn chmod(&mut self, resolved: ResolvedPath, mode: u32) -> Answer {
        const S_ISGID: u32 = 0o2000;
        let attributes = self.attributes(&resolved);
        if !self.owns(&attributes) {
            return Err(Errno::EPERM);
        }
        let mut mode = mode & 0o7777;
        if !self.own.identity.is_capable_with_files() && !self.own.identity.is_in(attributes.gid) {
            mode &= !S_ISGID;
        }
        if let Node::Open(open) = &resolved.node {
            open.borrow_mut().set_mode(mode);
            return Ok(0);
        }
        self.change(
            resolved,
            |inode| inode.mode = inode.mode & !0o7777 | mode,
            |host, path| host.set_mode(path, mode),
        )
    }

    /// Sets the times of a file; `None` leaves a time unchanged. With write permission, both may be
    /// set to `now`.
    pub(in crate::linux) fn set_times(
        &mut self,
        resolved: ResolvedPath,
        accessed: Option<Time>,
        modified: Option<Time>,
        now: bool,
    ) -> Answer {
        let attributes = self.attributes(&resolved);
        let may = self.owns(&attributes) || now && self.allows(&attributes, 2);

        if !may {
            return Err(if now { Errno::EACCES } else { Errno::EPERM });
        }

        // The host's clock stamps what is written there, so "now" is the host's, too: a file must not
        // be newer than one that is written later.
        let (virtual_now, host_now) = (self.now, host_now());
        self.change(
            resolved,
            |inode| {
                inode.accessed = accessed.unwrap_or(inode.accessed);
                inode.modified = modified.unwrap_or(inode.modified);
            },
            |host, path| {
                let pair = |time: Time| {
                    let time = if time == virtual_now { host_now } else { time };
                    (time.seconds, time.nanoseconds.into())
                };
                host.set_times(path, [accessed, modified].map(|time| time.map(pair)))
            },
        )
    }

    /// Changes the owner. Root may do that; others may only give their own file to one of their
    /// groups. On the host, the user of this process must be allowed to, too.
    pub(in crate::linux) fn chown(&mut self, resolved: ResolvedPath, uid: u32, gid: u32) -> Answer {
        const S_ISUID: u32 = 0o4000;
        const S_ISGID: u32 = 0o2000;
        let Attributes {
            uid: old_uid,
            gid: old_gid,
            ..
        } = self.attributes(&resolved);

        let is_owner = self.own.identity.user.file == old_uid;
        let may_uid = uid == KEEP || is_owner && uid == old_uid;
        let may_gid = gid == KEEP || is_owner && (gid == old_gid || self.own.identity.is_in(gid));
        let may = self.own.identity.is_capable_with_files() || may_uid && may_gid;
        if !may {
            return Err(Errno::EPERM);
        }

        // On the host the same users have other numbers.
        let given = [uid, gid].map(|id| (id != KEEP).then_some(id));
        let outside = self.owners.outside(given);
        let keep = |new: u32, old| if new == KEEP { old } else { new };
        let (uid, gid) = (keep(uid, old_uid), keep(gid, old_gid));

        if (uid, gid) == (old_uid, old_gid) {
            return Ok(0);
        }

        self.change(
            resolved,
            |inode| {
                (inode.uid, inode.gid) = (uid, gid);
                // A file with a new owner must not run as the old one (chown(2)).
                if !inode.is_directory() {
                    inode.mode &= !(S_ISUID | S_ISGID);
                }
            },
            |host, path| host.set_owner(path, outside),
        )
    }

    pub(in crate::linux) fn truncate(&mut self, resolved: ResolvedPath, size: u64) -> Answer {
        // The order of these checks is that of `vfs_truncate` (`fs/open.c`).
        if resolved.node.is_directory() {
            return Err(Errno::EISDIR);
        }

        let is_file = match &resolved.node {
            Node::Host(metadata) => metadata.is_file(),
            Node::Memory(inode) => inode.borrow().mode & S_IFMT == S_IFREG,
            Node::Open(_) => false,
            _ => true,
        };
        if !is_file {
            return Err(Errno::EINVAL);
        }

        if !self.allows(&self.attributes(&resolved), 2) {
            return Err(Errno::EACCES);
        }

        if let Node::Host(seen) = &resolved.node
            && self.on_host(&resolved.path)
        {
            let file = self.host.open(&resolved.path, seen, OpenAccess::WRITE)?;
            self.host_written();
            file.set_len(size)?;
            return Ok(0);
        }

        // Otherwise a copy in memory is cut off.
        let now = self.now;
        let inode = self.in_memory(resolved)?;
        let mut inode = inode.borrow_mut();
        inode.resize(size)?;
        (inode.modified, inode.changed) = (now, now);
        Ok(0)
    }
}

/// Makes an open file of the host refer to the copy of its file.
pub(in crate::linux) fn become_copy(open: &Shared, identity: (u64, u64), copy: &InodeRef) {
    let is_it = match &open.borrow().kind {
        Kind::Host(file) => file
            .metadata()
            .is_ok_and(|m| super::attributes::identity(&m) == identity),
        _ => false,
    };
    if is_it {
        open.borrow_mut().kind = Kind::Memory(copy.clone());
    }
}

/// Copies a file of the host into memory; pages of zeros become holes.
///
/// # Errors
/// If it cannot be read, or there is no room.
fn copy_content(from: &File, to: &mut super::Inode) -> Answer<()> {
    /// Read at once, bytes; whole pages.
    const PIECE: u64 = 1 << 16;
    let mut at = 0;
    loop {
        let mut piece = Vec::new();
        // It may grow meanwhile: what counts is where it ends.
        from.take(PIECE).read_to_end(&mut piece)?;
        for page in piece.chunks(PAGE_SIZE as usize) {
            if page.iter().any(|&byte| byte != 0) {
                to.write(at, page)?;
            }
            at += page.len() as u64;
        }
        if (piece.len() as u64) < PIECE {
            return to.resize(at);
        }
    }
}

/// The time on the host.
fn host_now() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since = since.unwrap_or_default();
    Time {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanoseconds: since.subsec_nanos(),
    }
}
