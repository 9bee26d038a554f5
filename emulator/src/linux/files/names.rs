//! Changes of names: creating, removing, linking, renaming. Changes are made on the host if the
//! process may write there, otherwise in memory. Not here: attributes, content (`change`).
//!
//! Source: Linux 6.12 `fs/namei.c`.

use super::attributes::{Attributes, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
use super::inode::InodeRef;
use super::{
    Answer, Errno, Files, LastComponent, Node, OverlayEntry, ResolvedPath, join, last, parent,
};
use std::fs;

/// Added to the path of a removed directory that is still in use: no name contains a NUL.
const REMOVED: u8 = 0;

/// Whether a path is that of a removed directory.
pub(in crate::linux) fn is_removed(path: &[u8]) -> bool {
    path.contains(&REMOVED)
}

/// What `renameat2` does if the new name exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::linux) enum ExistingTarget {
    Replaced,
    /// `RENAME_NOREPLACE`.
    Kept,
    /// `RENAME_EXCHANGE`.
    Exchanged,
}

impl Files {
    /// Creates a file that is not a directory, at a path: its device and inode number. On the host,
    /// a FIFO or socket is only a name: what it does is done in memory (see [`Files::stand_in`]).
    pub(in crate::linux) fn make_node(
        &mut self,
        base: &[u8],
        path: &[u8],
        mode: u32,
    ) -> Answer<(u64, u64)> {
        let path = self.new_path(base, path, false)?;
        let mode = mode & !self.own.umask;
        if self.on_host(&path) {
            match mode & S_IFMT {
                S_IFREG => drop(self.host.create(&path, false, mode & 0o7777)?),
                kind => self.host.make_node(&path, kind, mode & 0o7777)?,
            }
            return self.stand_in(&path);
        }
        let inode = self.new_inode(mode, parent(&path));
        let numbers = (inode.borrow().device, inode.borrow().number);
        self.insert(path, inode);
        Ok(numbers)
    }

    /// The numbers of a file of the host that was just made. If it is a FIFO or socket, an inode in
    /// memory stands for it under all of its names.
    fn stand_in(&mut self, path: &[u8]) -> Answer<(u64, u64)> {
        let metadata = self.host.metadata(path)?;
        let identity = super::attributes::identity(&metadata);
        if !metadata.is_file() {
            let inode = self.new_inode(0, parent(path));
            Attributes::of_host(&metadata, self.owners).set(&mut inode.borrow_mut());
            self.copied.insert(identity, inode);
        }
        Ok(identity)
    }

    /// Whether an inode stands for a file of the host at this path.
    pub(super) fn stands_in(&self, inode: &InodeRef, path: &[u8]) -> bool {
        self.allow_write && self.on_host(path) && self.is_copy(inode)
    }

    /// Forgets an inode in memory that stands for a file of the host, once that has no name.
    fn forget_stand_in(&mut self, inode: &InodeRef) {
        let mut file = inode.borrow_mut();
        file.links = file.links.saturating_sub(1);
        if file.links == 0 {
            self.copied.remove(&(file.device, file.number));
        }
    }

    fn remove(&mut self, path: &[u8]) {
        // What the host does not have needs not be hidden.
        let is_there = || self.host.metadata(path).is_ok();
        if self.is_of_host(path) && self.host.gate.quietly(is_there) {
            self.put_entry(path.to_vec(), OverlayEntry::Removed);
        } else {
            self.drop_entry(path);
        }
    }

    /// The path of something new; only the name of a directory may end with a slash.
    fn new_path(&self, base: &[u8], path: &[u8], directory: bool) -> Answer<Vec<u8>> {
        let (kind, trimmed) = last(path);
        if kind != LastComponent::Name {
            self.resolve(base, path, true)?;
            return Err(Errno::EEXIST);
        }
        let resolved = self.resolve(base, trimmed, false)?;
        if !matches!(resolved.node, Node::Missing) {
            return Err(Errno::EEXIST);
        }
        if trimmed.len() < path.len() && !directory {
            return Err(Errno::ENOENT);
        }
        self.check_may_change(parent(&resolved.path))?;
        self.budget.check_new(&resolved.path)?;
        Ok(resolved.path)
    }

    pub(in crate::linux) fn mkdir(&mut self, base: &[u8], path: &[u8], mode: u32) -> Answer {
        let path = self.new_path(base, path, true)?;
        let mode = mode & 0o1777 & !self.own.umask;
        if self.on_host(&path) {
            self.host.make_folder(&path, mode)?;
        } else {
            let inode = self.new_inode(S_IFDIR | mode, parent(&path));
            self.insert(path, inode);
        }
        Ok(0)
    }

    pub(in crate::linux) fn symlink(&mut self, target: &[u8], base: &[u8], path: &[u8]) -> Answer {
        if target.is_empty() {
            return Err(Errno::ENOENT);
        }
        let path = self.new_path(base, path, false)?;
        if self.on_host(&path) {
            self.host.make_link(target, &path)?;
        } else {
            let inode = self.new_inode(S_IFLNK | 0o777, parent(&path));
            inode.borrow_mut().write(0, target)?;
            self.insert(path, inode);
        }
        Ok(0)
    }

    /// Creates another name for a file.
    pub(in crate::linux) fn link(
        &mut self,
        from: ResolvedPath,
        base: &[u8],
        path: &[u8],
    ) -> Answer {
        let path = self.new_path(base, path, false)?;
        if from.node.is_directory() {
            return Err(Errno::EPERM);
        }
        if self.on_host(&path) && self.on_host(&from.path) {
            self.host.link(&from.path, &path)?;
            if let Node::Memory(inode) = &from.node {
                inode.borrow_mut().links += 1;
            }
            return Ok(0);
        }
        let now = self.now;
        let inode = self.in_memory(from)?;
        inode.borrow_mut().links += 1;
        inode.borrow_mut().changed = now;
        self.insert(path, inode);
        Ok(0)
    }

    /// `unlink`, or `rmdir` if `directory`.
    pub(in crate::linux) fn unlink(&mut self, base: &[u8], path: &[u8], directory: bool) -> Answer {
        let (kind, trimmed) = last(path);
        if kind != LastComponent::Name {
            self.resolve(base, path, true)?;
            // The errors of `do_unlinkat` and `do_rmdir` (`fs/namei.c`).
            return Err(match kind {
                _ if !directory => Errno::EISDIR,
                LastComponent::Dot => Errno::EINVAL,
                LastComponent::DotDot => Errno::ENOTEMPTY,
                LastComponent::Root | LastComponent::Name => Errno::EBUSY,
            });
        }

        let resolved = self.find(base, trimmed, false)?;
        let is_directory = resolved.node.is_directory();

        // A slash at the end asks for a folder.
        if trimmed.len() < path.len() && !directory {
            return Err(if is_directory {
                Errno::EISDIR
            } else {
                Errno::ENOTDIR
            });
        }

        self.check_may_remove(&resolved)?;
        match (is_directory, directory) {
            (true, false) => return Err(Errno::EISDIR),
            (false, true) => return Err(Errno::ENOTDIR),
            (true, true) if !self.list(&resolved.path)?.is_empty() => return Err(Errno::ENOTEMPTY),
            _ => {}
        }

        self.unlink_resolved(&resolved)
    }

    /// Checks that the process may remove a name: it must have write permission for the directory
    /// and, if that is sticky, own the directory or the file.
    fn check_may_remove(&self, resolved: &ResolvedPath) -> Answer<()> {
        const S_ISVTX: u32 = 0o1000;
        let directory = parent(&resolved.path);
        self.check_may_change(directory)?;
        let path = directory.to_vec();
        let node = self.node(directory);
        let directory = self.attributes(&ResolvedPath { path, node });
        let is_sticky = directory.mode & S_ISVTX != 0;
        if is_sticky && !self.owns(&directory) && !self.owns(&self.attributes(resolved)) {
            return Err(Errno::EPERM);
        }
        Ok(())
    }

    fn unlink_resolved(&mut self, resolved: &ResolvedPath) -> Answer {
        let is_directory = resolved.node.is_directory();
        let on_host = matches!(resolved.node, Node::Host(_)) && self.on_host(&resolved.path);
        let mut inode = None;

        match &resolved.node {
            Node::Memory(found) if self.stands_in(found, &resolved.path) => {
                self.host.remove(&resolved.path, false)?;
                self.forget_stand_in(found);
                return Ok(0);
            }
            Node::Special(_) | Node::Open(_) => return Err(Errno::EACCES),
            Node::Memory(found) => inode = Some(found.clone()),
            _ if on_host => {
                self.host.remove(&resolved.path, is_directory)?;
            }
            // Other users of the file see that it has one name less.
            Node::Host(metadata) if metadata.is_file() && self.is_known_elsewhere(metadata) => {
                inode = Some(self.copy_up(&resolved.path, metadata, true)?);
            }
            _ => {}
        }

        // Others may have it open, or know it by another name.
        if let Some(inode) = &inode {
            let mut inode = inode.borrow_mut();
            inode.links = inode.links.saturating_sub(1);
            inode.changed = self.now;
        }

        if !on_host {
            self.remove(&resolved.path);
        }

        // A process may still work in it.
        if is_directory {
            self.directory_is_gone(&resolved.path, inode);
        }
        Ok(0)
    }

    /// Whether a file that has lost a name has another one, as far as files in memory are concerned.
    pub(in crate::linux) fn has_name(&self, file: (u64, u64)) -> bool {
        let entries = self.entries.values().filter_map(|entry| match entry {
            OverlayEntry::Node(inode) => Some(inode),
            OverlayEntry::Removed => None,
        });
        let mut all = entries.chain(self.copied.values());
        all.any(|inode| {
            let inode = inode.borrow();
            (inode.device, inode.number) == file && inode.links > 0
        })
    }

    pub(in crate::linux) fn is_open(&self, file: (u64, u64)) -> bool {
        self.all_open().any(|open| open.borrow().lock_key() == file)
    }

    /// The open files of all processes.
    pub(in crate::linux) fn all_open(&self) -> impl Iterator<Item = &super::Shared> {
        let files = self.others.values().chain([&self.own]);
        files.flat_map(|files| files.table.open().map(|(_, open)| open))
    }

    /// Whether a file of the host has another name or is open.
    fn is_known_elsewhere(&self, metadata: &fs::Metadata) -> bool {
        use std::os::unix::fs::MetadataExt;
        let identity = super::attributes::identity(metadata);
        let is_it = |open: &super::Shared| match &open.borrow().kind {
            super::Kind::Host(file) => file
                .metadata()
                .is_ok_and(|m| super::attributes::identity(&m) == identity),
            _ => false,
        };
        metadata.nlink() > 1 || self.all_open().any(is_it)
    }

    /// A process that works in the removed directory or has it open finds it empty and cannot
    /// create anything in it.
    fn directory_is_gone(&mut self, path: &[u8], inode: Option<InodeRef>) {
        let mut all = self.others.values().chain([&self.own]);
        let is_cwd = all.any(|files| files.cwd == path || files.root == path);
        drop(all);
        if !is_cwd && !self.all_open().any(|open| open.borrow().path == path) {
            return;
        }
        let inode = match inode {
            Some(inode) => inode,
            None => self.new_inode(S_IFDIR | 0o755, parent(path)),
        };
        inode.borrow_mut().links = 0;
        let mut gone = path.to_vec();
        gone.push(REMOVED);
        gone.extend_from_slice(self.inodes.to_string().as_bytes());
        self.inodes += 1;
        self.insert(gone.clone(), inode);
        self.moved(path, &gone);
    }

    /// Updates the paths in use that are at or below `old`.
    fn moved(&mut self, old: &[u8], new: &[u8]) {
        let below = |path: &[u8]| {
            let rest = path.strip_prefix(old)?;
            (rest.is_empty() || rest[0] == b'/').then(|| [new, rest].concat())
        };
        for open in self.all_open() {
            let mut open = open.borrow_mut();
            if let Some(path) = below(&open.path) {
                open.path = path;
            }
        }
        for files in self.others.values_mut().chain([&mut self.own]) {
            for path in [&mut files.cwd, &mut files.root, &mut files.program] {
                if let Some(moved) = below(path) {
                    *path = moved;
                }
            }
        }
    }

    /// `renameat2`. A directory of the host cannot be renamed in memory (`EXDEV`, like Linux'
    /// overlayfs).
    pub(in crate::linux) fn rename(
        &mut self,
        from: (&[u8], &[u8]),
        to: (&[u8], &[u8]),
        existing: ExistingTarget,
    ) -> Answer {
        let ((from_kind, from_path), (to_kind, to_path)) = (last(from.1), last(to.1));
        if from_kind != LastComponent::Name || to_kind != LastComponent::Name {
            // `.`, `..` and the root cannot be renamed; errors on the way to them come first.
            self.resolve(from.0, from.1, true)?;
            self.resolve(to.0, to.1, true)?;
            return Err(
                if from_kind == LastComponent::Name && existing == ExistingTarget::Kept {
                    Errno::EEXIST
                } else {
                    Errno::EBUSY
                },
            );
        }

        let slashes = (from_path.len() < from.1.len(), to_path.len() < to.1.len());
        let to_resolved = self.resolve(to.0, to_path, false);
        let from = self.find(from.0, from_path, false)?;
        let to = to_resolved?;

        let exists = !matches!(to.node, Node::Missing);
        match existing {
            ExistingTarget::Kept if exists => return Err(Errno::EEXIST),
            ExistingTarget::Exchanged if !exists => return Err(Errno::ENOENT),
            _ => {}
        }

        let is_directory = from.node.is_directory();
        let exchanges = existing == ExistingTarget::Exchanged;
        // A slash at the end is for folders.
        if !is_directory && (slashes.0 || slashes.1 && !exchanges) {
            return Err(Errno::ENOTDIR);
        }
        if exchanges && slashes.1 && !to.node.is_directory() {
            return Err(Errno::ENOTDIR);
        }

        // A folder cannot be moved into itself.
        if to.path.starts_with(&join(&from.path, b"")) {
            return Err(if is_directory {
                Errno::EINVAL
            } else {
                Errno::ENOTDIR
            });
        }

        // A target that has the source in it is not empty.
        if from.path.starts_with(&join(&to.path, b"")) {
            return Err(if exchanges {
                Errno::EINVAL
            } else {
                Errno::ENOTEMPTY
            });
        }

        // Two names of one file: rename(2) leaves both.
        if from.path == to.path || is_same(&from.node, &to.node) {
            return Ok(0);
        }

        // Both folders change, and sticky ones protect their files.
        self.check_may_remove(&from)?;
        if exists {
            self.check_may_remove(&to)?
        } else {
            self.check_may_change(parent(&to.path))?
        }

        if exchanges {
            return self.exchange(from, to);
        }

        match (is_directory, to.node.is_directory()) {
            (true, false) if exists => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            (true, true) if !self.list(&to.path)?.is_empty() => return Err(Errno::ENOTEMPTY),
            _ => {}
        }

        if self.on_host(&from.path) && self.on_host(&to.path) {
            self.host.rename(&from.path, &to.path)?;
            // A copy in memory stood for the file that was replaced.
            if let Node::Memory(replaced) = &to.node {
                self.forget_stand_in(replaced);
            }
            self.moved(&from.path, &to.path);
            return Ok(0);
        }

        let (old, new) = (from.path.clone(), to.path.clone());
        // Longer paths of all that is inside.
        let longer = new.len().saturating_sub(old.len()) as u64;
        let prefix = join(&old, b"");
        let inside = self.entries.range(prefix.clone()..);
        let inside = inside.take_while(|(path, _)| path.starts_with(&prefix));

        // The memory that the new names need is checked before anything moves.
        self.budget.check_new(&new)?;
        self.budget
            .check(longer.saturating_mul(inside.count() as u64))?;

        let inode = self.inode_to_move(from)?;
        if exists {
            self.unlink_resolved(&to)?;
        }

        // Paths are the keys: all that is inside gets new ones.
        let inside = self.take_inside(&old);
        self.remove(&old);
        self.put_inside(&new, inode, inside);
        self.moved(&old, &new);
        Ok(0)
    }

    fn exchange(&mut self, one: ResolvedPath, other: ResolvedPath) -> Answer {
        let paths = (one.path.clone(), other.path.clone());
        let (first, second) = (self.inode_to_move(one)?, self.inode_to_move(other)?);
        let (inside_first, inside_second) =
            (self.take_inside(&paths.0), self.take_inside(&paths.1));
        self.put_inside(&paths.1, first, inside_first);
        self.put_inside(&paths.0, second, inside_second);
        // An unused path stands for one of them while both move.
        let between = [&paths.0[..], &[REMOVED]].concat();
        self.moved(&paths.0, &between);
        self.moved(&paths.1, &paths.0);
        self.moved(&between, &paths.1);
        Ok(0)
    }

    /// The inode of a file that gets another name.
    fn inode_to_move(&mut self, from: ResolvedPath) -> Answer<InodeRef> {
        match from.node {
            Node::Host(ref metadata) if metadata.is_symlink() => {
                let target = from
                    .node
                    .link(self, &from.path)
                    .unwrap_or(Err(Errno::EIO))?;
                let inode = self.new_inode(S_IFLNK | 0o777, parent(&from.path));
                inode.borrow_mut().write(0, &target)?;
                Ok(inode)
            }
            // Its content would still be at the old path on the host.
            Node::Memory(ref inode) if inode.borrow().is_directory() && self.is_copy(inode) => {
                Err(Errno::EXDEV)
            }
            _ => self.in_memory(from),
        }
    }

    fn is_copy(&self, inode: &InodeRef) -> bool {
        let mut copied = self.copied.values();
        copied.any(|copy| std::rc::Rc::ptr_eq(copy, inode))
    }

    /// Removes and returns the content of a directory in memory, by relative path.
    fn take_inside(&mut self, directory: &[u8]) -> Vec<(Vec<u8>, OverlayEntry)> {
        let prefix = join(directory, b"");
        let inside = self.entries.range(prefix.clone()..);
        let paths: Vec<Vec<u8>> = inside
            .map(|(path, _)| path.clone())
            .take_while(|path| path.starts_with(&prefix))
            .collect();
        let mut taken = Vec::new();
        for path in paths {
            if let Some(entry) = self.drop_entry(&path) {
                taken.push((path[prefix.len()..].to_vec(), entry));
            }
        }
        taken
    }

    fn put_inside(&mut self, path: &[u8], inode: InodeRef, inside: Vec<(Vec<u8>, OverlayEntry)>) {
        inode.borrow_mut().changed = self.now;
        for (rest, entry) in inside {
            self.put_entry(join(path, &rest), entry);
        }
        self.insert(path.to_vec(), inode);
    }
}

/// Whether both are the same file.
fn is_same(one: &Node, other: &Node) -> bool {
    match (one, other) {
        (Node::Memory(one), Node::Memory(other)) => std::rc::Rc::ptr_eq(one, other),
        (Node::Host(one), Node::Host(other)) => {
            super::attributes::identity(one) == super::attributes::identity(other)
        }
        _ => false,
    }
}
