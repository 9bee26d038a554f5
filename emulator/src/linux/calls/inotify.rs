//! `inotify`: the calls, and what happens to files.
//!
//! Source: Linux 6.12 `fs/notify/inotify/inotify_user.c`, `include/linux/fsnotify.h`.

use super::at::AT_FDCWD;
use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{Kind, Node, ResolvedPath, Shared, o};
use crate::linux::handle::{HandleKind, ev};
use crate::linux::objects::{Inotify, Object, event};

/// A file: device and inode number.
type FileId = (u64, u64);

/// A path, the file that is there, and whether it is a folder.
type PathTarget = (Vec<u8>, Option<FileId>, bool);

/// The folder of a path, and the name in it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let slash = path.iter().rposition(|&byte| byte == b'/');
    match slash {
        Some(0) => (b"/", &path[1..]),
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"/", path),
    }
}

impl Kernel {
    pub(super) fn sys_inotify_init(&mut self, flags: u64) -> Answer {
        if flags as u32 & !(o::CLOEXEC | o::NONBLOCK) != 0 {
            return Err(Errno::EINVAL);
        }
        let object = Object::Inotify(Inotify::default());
        self.add_object(object, flags as u32 & o::NONBLOCK, flags)
    }

    fn inotify_of(&mut self, fd: u64) -> Answer<&mut Inotify> {
        let open = self.files.own.table.get(fd)?;
        let id = match &open.borrow().kind {
            Kind::Object(handle) if handle.sort == HandleKind::Inotify => handle.id,
            _ => return Err(Errno::EINVAL),
        };
        match self.objects.get_mut(id) {
            Some(Object::Inotify(inotify)) => Ok(inotify),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(super) fn sys_inotify_add(&mut self, fd: u64, path: u64, mask: u64) -> Answer {
        const KNOWN: u32 = event::ALL
            | 0x2000
            | event::OVERFLOW
            | event::IGNORED
            | event::ONLYDIR
            | event::DONT_FOLLOW
            | event::EXCL_UNLINK
            | event::MASK_CREATE
            | event::MASK_ADD
            | event::ISDIR
            | event::ONESHOT;

        let mask = mask as u32;
        // Linux wants a bit that it knows, and ignores the others.
        if mask & KNOWN == 0 {
            return Err(Errno::EINVAL);
        }

        let both = event::MASK_ADD | event::MASK_CREATE;
        // Linux looks at the descriptor before this second check of the mask.
        self.files.own.table.get(fd)?;
        if mask & both == both {
            return Err(Errno::EINVAL);
        }

        self.inotify_of(fd)?;
        let found = self.find(AT_FDCWD, path, mask & event::DONT_FOLLOW == 0)?;
        if mask & event::ONLYDIR != 0 && !found.node.is_directory() {
            return Err(Errno::ENOTDIR);
        }

        // Watching needs the permission to read (`inotify_find_inode`).
        let attributes = self.files.attributes(&found);
        if !self.files.allows(&attributes, 4) {
            return Err(Errno::EACCES);
        }

        if matches!(found.node, Node::Special(_)) {
            let what = "inotify of files that the kernel generates";
            return self.not_modelled(what, Errno::ENOSPC);
        }

        let file = (attributes.device, attributes.inode);
        let inotify = self.inotify_of(fd)?;
        let kept = mask & (event::ALL | event::ONESHOT | event::EXCL_UNLINK);

        let Some(watch) = inotify.watch_of(file) else {
            let watch = inotify.add(file, kept);
            self.objects.has_inotify = true;
            // The end of what is open already is told, too.
            let open: Vec<Shared> = self.files.all_open().cloned().collect();
            open.iter().for_each(|open| self.watch_open(open));
            return Ok(watch.into());
        };

        // IN_MASK_CREATE must not change a watch that there is (inotify(7)).
        if mask & event::MASK_CREATE != 0 {
            return Err(Errno::EEXIST);
        }

        // A second call for a file replaces its mask.
        if let Some(old) = inotify.mask_mut(watch) {
            *old = kept | if mask & event::MASK_ADD != 0 { *old } else { 0 };
        }
        Ok(watch.into())
    }

    pub(super) fn sys_inotify_remove(&mut self, fd: u64, watch: u64) -> Answer {
        let open = self.files.own.table.get(fd)?;
        if !self.inotify_of(fd)?.remove(watch as u32) {
            return Err(Errno::EINVAL);
        }
        if let Kind::Object(handle) = &open.borrow().kind {
            self.objects.wake(handle.id, ev::READABLE);
        }
        Ok(0)
    }

    /// Reads events into memory.
    pub(super) fn read_inotify(
        &mut self,
        open: &Shared,
        id: u32,
        vectors: &[(u64, u64)],
        most: u64,
    ) -> Answer {
        let Some(Object::Inotify(inotify)) = self.objects.get_mut(id) else {
            return Err(Errno::EINVAL);
        };
        if inotify.is_empty() {
            return self.wait_for_object(open);
        }
        let bytes = inotify.take(most).ok_or(Errno::EINVAL)?;
        self.scatter(vectors, &bytes)
    }

    /// Whether anybody watches files.
    pub(super) fn watches_files(&self) -> bool {
        self.objects.has_inotify
    }

    fn key_of(&self, path: &[u8]) -> Option<FileId> {
        let node = self.files.node(path);
        if matches!(node, Node::Missing | Node::Special(_)) {
            return None;
        }
        let path = path.to_vec();
        let attributes = self.files.attributes(&ResolvedPath { path, node });
        Some((attributes.device, attributes.inode))
    }

    fn tell_watchers(&mut self, file: Option<FileId>, mask: u32, cookie: u32, name: &[u8]) {
        let Some(file) = file else {
            return;
        };
        for id in self
            .objects
            .find(|object| matches!(object, Object::Inotify(_)))
        {
            if let Some(Object::Inotify(inotify)) = self.objects.get_mut(id)
                && inotify.happened(file, mask, cookie, name)
            {
                self.objects.wake(id, ev::READABLE);
                self.system.changes += 1;
            }
        }
    }

    /// Something happened to the file at a path: its folder's watchers and its own learn of it.
    pub(super) fn path_event(
        &mut self,
        path: &[u8],
        file: Option<FileId>,
        mask: u32,
        is_folder: bool,
    ) {
        if !self.watches_files() {
            return;
        }
        let mask = mask | if is_folder { event::ISDIR } else { 0 };
        let (folder, name) = split(path);
        let (folder, name) = (self.key_of(folder), name.to_vec());
        self.tell_watchers(folder, mask, 0, &name);
        self.tell_watchers(file, mask, 0, b"");
    }

    /// Something happened to a name in a folder.
    pub(super) fn name_event(&mut self, path: &[u8], mask: u32, cookie: u32, is_folder: bool) {
        if !self.watches_files() {
            return;
        }
        let mask = mask | if is_folder { event::ISDIR } else { 0 };
        let (folder, name) = split(path);
        let (folder, name) = (self.key_of(folder), name.to_vec());
        self.tell_watchers(folder, mask, cookie, &name);
    }

    /// Something happened to a file, which may have no name any longer.
    pub(super) fn self_event(&mut self, file: Option<FileId>, mask: u32) {
        if self.watches_files() {
            self.tell_watchers(file, mask, 0, b"");
        }
    }

    /// Something happened to an open file.
    pub(super) fn open_event(&mut self, open: &Shared, mask: u32) {
        if !self.watches_files() {
            return;
        }
        let (path, is_folder) = {
            let open = open.borrow();
            let is_folder = matches!(open.kind, Kind::Directory(_));
            match open.kind {
                Kind::Host(_) | Kind::Memory(_) | Kind::Directory(_) => {}
                _ => return,
            }
            (open.path.clone(), is_folder)
        };
        let file = if is_folder {
            self.key_of(&path)
        } else {
            Some(open.borrow().lock_key())
        };
        self.path_event(&path, file, mask, is_folder);
    }

    /// Closed files that were opened while somebody watched.
    pub(super) fn closed_event(&mut self, id: u32) {
        if let Some((path, file, writes)) = self.objects.watched_open.remove(&id) {
            let mask = if writes {
                event::CLOSE_WRITE
            } else {
                event::CLOSE_NOWRITE
            };
            let is_folder = self.files.node(&path).is_directory();
            self.path_event(&path, Some(file), mask, is_folder);
            if self.objects.doomed.contains(&file) && !self.files.is_open(file) {
                self.objects.doomed.remove(&file);
                self.self_event(Some(file), event::DELETE_SELF);
            }
        }
    }

    /// A file was opened: its watchers learn of this, and of its end.
    pub(super) fn opened_event(&mut self, open: &Shared) {
        if !self.watches_files() {
            return;
        }
        self.open_event(open, event::OPEN);
        self.watch_open(open);
    }

    /// Notes an open file, so that its end is told.
    fn watch_open(&mut self, open: &Shared) {
        let (path, writes, is_folder) = {
            let open = open.borrow();
            match open.kind {
                Kind::Host(_) | Kind::Memory(_) | Kind::Directory(_) => {}
                _ => return,
            }
            let is_folder = matches!(open.kind, Kind::Directory(_));
            (open.path.clone(), open.can_write(), is_folder)
        };
        let file = if is_folder {
            self.key_of(&path)
        } else {
            Some(open.borrow().lock_key())
        };
        if let Some(file) = file {
            let id = self.open_number(open);
            self.objects.watched_open.insert(id, (path, file, writes));
        }
    }

    /// The key and kind of what is at a path, before it changes.
    pub(super) fn seen_at(&self, base: &[u8], path: &[u8]) -> Option<PathTarget> {
        if !self.watches_files() {
            return None;
        }
        let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
        let resolved = self.files.resolve(base, &path[..end], false).ok()?;
        let key = self.key_of(&resolved.path);
        let is_folder = resolved.node.is_directory();
        Some((resolved.path, key, is_folder))
    }

    /// What is told when attributes change: the path, the file, and whether it is a folder.
    pub(super) fn seen_node(&self, resolved: &ResolvedPath) -> Option<PathTarget> {
        let watches = self.watches_files() && !matches!(resolved.node, Node::Special(_));
        watches.then(|| {
            let attributes = self.files.attributes(resolved);
            let file = (attributes.device, attributes.inode);
            (
                resolved.path.clone(),
                Some(file),
                resolved.node.is_directory(),
            )
        })
    }

    pub(super) fn changed_attributes(&mut self, seen: Option<PathTarget>) -> Answer {
        if let Some((path, file, is_folder)) = seen {
            self.path_event(&path, file, event::ATTRIB, is_folder);
        }
        Ok(0)
    }

    /// A name was created.
    pub(super) fn created(&mut self, base: &[u8], path: &[u8]) {
        if let Some((path, _, is_folder)) = self.seen_at(base, path) {
            self.name_event(&path, event::CREATE, 0, is_folder);
        }
    }

    /// A file has lost a name: its own watchers learn of its end if it has no other, but not before
    /// it is closed.
    pub(super) fn self_event_if_gone(&mut self, file: Option<FileId>) {
        match file.filter(|&file| !self.files.has_name(file)) {
            Some(file) if self.files.is_open(file) => {
                self.objects.doomed.insert(file);
            }
            Some(file) => self.self_event(Some(file), event::DELETE_SELF),
            None => {}
        }
    }

    /// A name was moved, or two were exchanged.
    pub(super) fn moved_events(
        &mut self,
        old: Option<PathTarget>,
        new: Option<PathTarget>,
        both: bool,
    ) {
        let (Some((from, file, is_folder)), Some((to, replaced, other))) = (old, new) else {
            return;
        };
        if from == to {
            return;
        }
        let replaced = replaced.filter(|_| !both).map(|file| (file, other));
        self.moved(&from, &to, file, is_folder, replaced);
        if both {
            let file = self.key_of(&from);
            self.moved(&to, &from, file, other, None);
        }
    }

    fn moved(
        &mut self,
        from: &[u8],
        to: &[u8],
        file: Option<FileId>,
        is_folder: bool,
        replaced: Option<(FileId, bool)>,
    ) {
        self.objects.cookie += 1;
        let cookie = self.objects.cookie;
        self.name_event(from, event::MOVED_FROM, cookie, is_folder);
        self.name_event(to, event::MOVED_TO, cookie, is_folder);
        if let Some((replaced, _)) = replaced {
            self.self_event(Some(replaced), event::ATTRIB);
        }
        self.self_event(file, event::MOVE_SELF);
        if let Some((replaced, _)) = replaced {
            self.self_event_if_gone(Some(replaced));
        }
    }
}
