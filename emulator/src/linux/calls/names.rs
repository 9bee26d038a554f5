//! Files by name: opening, creating, removing, renaming.

use super::at::{AT_EMPTY_PATH, AT_FDCWD, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW};
use crate::linux::Kernel;
use crate::linux::Limit;
use crate::linux::Notice;
use crate::linux::clock::SECOND;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{
    Attributes, ExistingTarget, Kind, Node, Opened, ResolvedPath, S_IFDIR, S_IFMT, S_IFREG, Shared,
    Special, Text, Time, o,
};
use crate::linux::objects::event;

/// The set-user-ID and set-group-ID bits of a mode.
const SET_IDS: u32 = 0o6000;
/// Of a folder, it only says which group new files have.
const SET_GROUP_ID: u32 = 0o2000;

impl Kernel {
    /// The directory in which a relative path starts.
    pub(in crate::linux) fn base(&self, fd: u64, path: &[u8]) -> Answer<Vec<u8>> {
        if path.starts_with(b"/") {
            return Ok(self.files.own.root.clone());
        }
        if fd as u32 == AT_FDCWD as u32 {
            return Ok(self.files.own.cwd.clone());
        }
        let open = self.files.own.table.get_named(fd)?;
        let open = open.borrow();
        match open.kind {
            Kind::Directory(_) | Kind::Path => Ok(open.path.clone()),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// The path at an address, and the directory in which it starts.
    pub(super) fn path_and_base(&self, fd: u64, path: u64) -> Answer<(Vec<u8>, Vec<u8>)> {
        let path = self.path_at(path)?;
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        let base = self.base(fd, &path)?;
        Ok((path, base))
    }

    /// Resolves the path at an address.
    pub(super) fn find(&self, fd: u64, path: u64, follow: bool) -> Answer<ResolvedPath> {
        let (path, base) = self.path_and_base(fd, path)?;
        self.files.find(&base, &path, follow)
    }

    /// The path of an open file.
    fn path_of_open(&self, fd: u64) -> Answer<ResolvedPath> {
        self.path_of(&self.files.own.table.get(fd)?)
    }

    /// Like [`Process::path_of_open`], also for a file opened with `O_PATH`.
    pub(in crate::linux) fn path_of_named(&self, fd: u64) -> Answer<ResolvedPath> {
        self.path_of(&self.files.own.table.get_named(fd)?)
    }

    pub(in crate::linux) fn path_of(&self, shared: &Shared) -> Answer<ResolvedPath> {
        let open = shared.borrow();
        let path = open.path.clone();
        let node = match &open.kind {
            Kind::Memory(inode) => Node::Memory(inode.clone()),
            Kind::Pipe(end) if let Some(inode) = &end.fifo => Node::Memory(inode.clone()),
            _ if !open.has_name() => Node::Open(shared.clone()),
            Kind::Stdin | Kind::Stdout | Kind::Stderr => Node::Open(shared.clone()),
            _ => self.files.node(&path),
        };
        match node {
            Node::Missing => Err(Errno::EPERM),
            Node::Refused => Err(Errno::EACCES),
            node => Ok(ResolvedPath { path, node }),
        }
    }

    pub(super) fn sys_open(&mut self, fd: u64, path: u64, flags: u64, mode: u64) -> Answer {
        // A call that waited for the other end of a FIFO has its file already.
        if let Some(open) = self.opening() {
            return self.opened(open?, flags);
        }

        let (path, base) = self.path_and_base(fd, path)?;
        let is_rooted = self.files.own.root == b"/";
        let already = is_rooted.then(|| self.files.opened_already(&path));
        let resolved = match already.flatten() {
            Some(opened) if flags as u32 & o::PATH == 0 => match opened? {
                Opened::Stream(open) => return self.add_open(open, flags),
                Opened::File(resolved) => resolved,
            },
            _ => self.path_to_open(&base, &path, flags as u32)?,
        };

        let writes = flags as u32 & (o::ACCMODE | o::TRUNC) != 0;
        let text = match resolved.node {
            Node::Special(Special::Text(Text::Comm, task)) => self.text(Text::Comm, task),
            Node::Special(Special::Text(Text::Uuid, _)) => self.new_uuid(),
            Node::Special(Special::Text(..)) if writes && flags as u32 & o::PATH == 0 => {
                // Java sets what a core dump would hold; there is none.
                if resolved.path.ends_with(b"/coredump_filter") {
                    return Err(Errno::EACCES);
                }
                return self.not_modelled("writing to files of /proc and /sys", Errno::EACCES);
            }
            Node::Special(Special::Text(text, task)) => self.text(text, task),
            _ => Vec::new(),
        };

        self.may_keep_text(text.len())?;

        let old = self.files.attributes(&resolved).size;
        let is_new = matches!(resolved.node, Node::Missing);
        let created = is_new.then(|| resolved.path.clone());

        // No file is created if there is no descriptor for it (`do_sys_openat2`).
        let limit = self.descriptors_max();
        self.files.own.table.needs_free(limit)?;

        if let Some(open) = self.open_terminal_file(&resolved, flags as u32) {
            return self.opened(open?, flags);
        }
        if let Some(open) = self.open_process_memory(&resolved, flags as u32) {
            return self.opened(open?, flags);
        }
        if let Some(open) = self.open_fifo_file(&resolved, flags as u32) {
            return self.opened(open?, flags);
        }

        let mut mode = mode as u32;
        // On the host, a set-ID bit would let others run the file as the user of this process.
        if is_new && self.files.on_host(&resolved.path) {
            mode = self.without_set_ids(mode, 0);
        }

        let open = match self.files.open(resolved, flags as u32, mode, text) {
            Err(Errno::ENODEV) => {
                let what = "opening devices, FIFOs and sockets of the host";
                return self.not_modelled(what, Errno::ENXIO);
            }
            // Within the limits of the program: it is this process that may not open more.
            Err(errno @ (Errno::EMFILE | Errno::ENFILE)) => {
                return self.refuse(Limit::HostFiles, errno);
            }
            open => open?,
        };

        // Mappings of the file show that it is empty.
        if flags as u32 & o::TRUNC != 0 {
            self.file_resized(&open, old);
        }

        if let Some(path) = created {
            self.name_event(&path, event::CREATE, 0, false);
        }
        self.opened_event(&open);
        if flags as u32 & o::TRUNC != 0 && !is_new {
            self.open_event(&open, event::MODIFY);
        }

        self.add_open(open, flags)
    }

    /// Gives an open file that has no content a descriptor.
    fn opened(&mut self, open: Shared, flags: u64) -> Answer {
        self.opened_event(&open);
        self.add_open(open, flags)
    }

    fn path_to_open(&mut self, base: &[u8], path: &[u8], flags: u32) -> Answer<ResolvedPath> {
        self.files.path_to_open(base, path, flags)
    }

    pub(super) fn sys_readlink(&mut self, fd: u64, path: u64, to: u64, size: u64) -> Answer {
        if size as i32 <= 0 {
            return Err(Errno::EINVAL);
        }
        let is_empty = self.path_at(path)?.is_empty();
        let resolved = if is_empty && fd as u32 != AT_FDCWD as u32 {
            self.path_of_named(fd)?
        } else {
            self.find(fd, path, false)?
        };
        let target = resolved.node.link(&self.files, &resolved.path);
        let not_a_link = if is_empty {
            Errno::ENOENT
        } else {
            Errno::EINVAL
        };
        let target = target.ok_or(not_a_link)??;
        let count = target.len().min(size as usize);
        self.put(to, &target[..count])?;
        Ok(count as u64)
    }

    pub(super) fn sys_mkdir(&mut self, fd: u64, path: u64, mode: u64) -> Answer {
        let (path, base) = self.path_and_base(fd, path)?;
        self.files.mkdir(&base, &path, mode as u32)?;
        self.created(&base, &path);
        Ok(0)
    }

    pub(super) fn sys_unlink(&mut self, fd: u64, path: u64, flags: u64) -> Answer {
        if flags as u32 & !(AT_REMOVEDIR as u32) != 0 {
            return Err(Errno::EINVAL);
        }
        let (path, base) = self.path_and_base(fd, path)?;
        let seen = self.seen_at(&base, &path);
        let is_directory = flags & AT_REMOVEDIR != 0;
        self.files.unlink(&base, &path, is_directory)?;
        if let Some((path, file, is_folder)) = seen {
            if !is_folder {
                self.self_event(file, event::ATTRIB);
            }
            self.name_event(&path, event::DELETE, 0, is_folder);
            self.self_event_if_gone(file);
        }
        Ok(0)
    }

    pub(super) fn sys_rename(
        &mut self,
        from_fd: u64,
        from: u64,
        to_fd: u64,
        to: u64,
        flags: u64,
    ) -> Answer {
        const WHITEOUT: u32 = 4;

        // 1 is RENAME_NOREPLACE, 2 is RENAME_EXCHANGE.
        let existing = match flags as u32 {
            0 => ExistingTarget::Replaced,
            1 => ExistingTarget::Kept,
            2 => ExistingTarget::Exchanged,
            WHITEOUT | 5 => return self.not_modelled("renameat2: whiteouts", Errno::EINVAL),
            // RENAME_EXCHANGE goes with no other flag (`do_renameat2`).
            _ => return Err(Errno::EINVAL),
        };

        let (from, from_base) = self.path_and_base(from_fd, from)?;
        let (to, to_base) = self.path_and_base(to_fd, to)?;
        // The events name the files as they were before.
        let (old, new) = (self.seen_at(&from_base, &from), self.seen_at(&to_base, &to));
        let (from, to) = ((&from_base[..], &from[..]), (&to_base[..], &to[..]));

        match self.files.rename(from, to, existing) {
            Err(Errno::EXDEV) => {
                self.not_modelled("renaming a folder of the host in memory", Errno::EXDEV)
            }
            Ok(_) => {
                self.moved_events(old, new, existing == ExistingTarget::Exchanged);
                Ok(0)
            }
            answer => answer,
        }
    }

    pub(super) fn sys_link(
        &mut self,
        from_fd: u64,
        from: u64,
        to_fd: u64,
        to: u64,
        flags: u64,
    ) -> Answer {
        if flags as u32 & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) as u32 != 0 {
            return Err(Errno::EINVAL);
        }
        let from = match self.path_at(from)?.is_empty() {
            true if flags & AT_EMPTY_PATH != 0 => self.path_of_named(from_fd)?,
            _ => self.find(from_fd, from, flags & AT_SYMLINK_FOLLOW != 0)?,
        };
        let (to, base) = self.path_and_base(to_fd, to)?;
        let file = self.files.attributes(&from);
        self.files.link(from, &base, &to)?;
        self.self_event(Some((file.device, file.inode)), event::ATTRIB);
        self.created(&base, &to);
        Ok(0)
    }

    pub(super) fn sys_symlink(&mut self, target: u64, fd: u64, path: u64) -> Answer {
        let target = self.path_at(target)?;
        let (path, base) = self.path_and_base(fd, path)?;
        self.files.symlink(&target, &base, &path)?;
        self.created(&base, &path);
        Ok(0)
    }

    pub(super) fn sys_truncate(&mut self, path: u64, size: u64) -> Answer {
        if size > i64::MAX as u64 {
            return Err(Errno::EINVAL);
        }
        let resolved = self.find(AT_FDCWD, path, true)?;
        let Attributes {
            device,
            inode,
            size: old,
            ..
        } = self.files.attributes(&resolved);
        let path = resolved.path.clone();
        self.may_resize(self.files.attributes(&resolved).size, size)?;
        self.files.truncate(resolved, size)?;
        self.path_resized(&path, (device, inode), old);
        self.path_event(&path, Some((device, inode)), event::MODIFY, false);
        Ok(0)
    }

    pub(super) fn sys_chmod(&mut self, fd: u64, path: u64, mode: u64) -> Answer {
        let resolved = self.find(fd, path, true)?;
        let seen = self.seen_node(&resolved);
        self.change_mode(resolved, mode as u32)?;
        self.changed_attributes(seen)
    }

    /// `fchmodat2`.
    pub(super) fn sys_fchmodat2(&mut self, fd: u64, path: u64, mode: u64, flags: u64) -> Answer {
        if flags as u32 & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) as u32 != 0 {
            return Err(Errno::EINVAL);
        }
        let resolved = match self.path_at(path)?.is_empty() {
            true if flags & AT_EMPTY_PATH != 0 => self.path_of_named(fd)?,
            _ => self.find(fd, path, flags & AT_SYMLINK_NOFOLLOW == 0)?,
        };
        if resolved.node.link(&self.files, &resolved.path).is_some() {
            return Err(Errno::EOPNOTSUPP);
        }
        let seen = self.seen_node(&resolved);
        self.change_mode(resolved, mode as u32)?;
        self.changed_attributes(seen)
    }

    pub(super) fn sys_fchmod(&mut self, fd: u64, mode: u64) -> Answer {
        let resolved = self.path_of_open(fd)?;
        let seen = self.seen_node(&resolved);
        self.change_mode(resolved, mode as u32)?;
        self.changed_attributes(seen)
    }

    /// Changes a mode. The host's files get no set-user-ID and set-group-ID bits that they do not
    /// have: whoever runs such a program would run it with the rights of this process's user.
    fn change_mode(&mut self, resolved: ResolvedPath, mode: u32) -> Answer {
        let has_name = matches!(resolved.node, Node::Host(_) | Node::Memory(_));
        let kept = match has_name && self.files.on_host(&resolved.path) {
            true if resolved.node.is_directory() => {
                self.files.attributes(&resolved).mode | SET_GROUP_ID
            }
            true => self.files.attributes(&resolved).mode,
            false => SET_IDS,
        };
        let mode = self.without_set_ids(mode, kept);
        self.files.chmod(resolved, mode)
    }

    /// A mode without set-user-ID and set-group-ID bits other than these, which is reported.
    fn without_set_ids(&mut self, mode: u32, kept: u32) -> u32 {
        let refused = mode & SET_IDS & !kept;
        if refused != 0 {
            self.notice(Notice::Part(
                "set-user-ID and set-group-ID bits on the host",
            ));
        }
        mode & !refused
    }

    pub(super) fn sys_chown(
        &mut self,
        fd: u64,
        path: u64,
        uid: u64,
        gid: u64,
        flags: u64,
    ) -> Answer {
        if flags as u32 & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) as u32 != 0 {
            return Err(Errno::EINVAL);
        }
        let resolved = match self.path_at(path)?.is_empty() {
            true if flags & AT_EMPTY_PATH != 0 => self.path_of_named(fd)?,
            _ => self.find(fd, path, flags & AT_SYMLINK_NOFOLLOW == 0)?,
        };
        let seen = self.seen_node(&resolved);
        self.files.chown(resolved, uid as u32, gid as u32)?;
        self.changed_attributes(seen)
    }

    pub(super) fn sys_fchown(&mut self, fd: u64, uid: u64, gid: u64) -> Answer {
        let resolved = self.path_of_open(fd)?;
        let seen = self.seen_node(&resolved);
        self.files.chown(resolved, uid as u32, gid as u32)?;
        self.changed_attributes(seen)
    }

    /// Reads two `struct timespec` for `utimensat`, and whether both mean now; 0 for now.
    fn times_at(&self, times: u64) -> Answer<([Option<Time>; 2], bool)> {
        const NOW: u64 = 0x3fff_ffff;
        const OMIT: u64 = 0x3fff_fffe;
        let mut set = [Some(self.files.now); 2];
        let mut sets_now = true;
        for (index, set) in set.iter_mut().enumerate().filter(|_| times != 0) {
            let at = times.wrapping_add(16 * index as u64);
            let (seconds, nanoseconds) = (self.u64_at(at)?, self.u64_at(at.wrapping_add(8))?);
            match nanoseconds {
                NOW => {}
                OMIT => (*set, sets_now) = (None, false),
                nanoseconds if nanoseconds < SECOND => {
                    sets_now = false;
                    *set = Some(Time {
                        seconds: seconds.cast_signed(),
                        nanoseconds: nanoseconds as u32,
                    });
                }
                _ => return Err(Errno::EINVAL),
            }
        }
        Ok((set, sets_now))
    }

    /// `utime`, `utimes` and `futimesat`: two times of seconds, with microseconds if `fine`.
    pub(super) fn sys_utimes(&mut self, fd: u64, path: u64, times: u64, fine: bool) -> Answer {
        let mut set = [Some(self.files.now); 2];
        for (index, set) in (0..).zip(&mut set).filter(|_| times != 0) {
            let at = times.wrapping_add(if fine { 16 } else { 8 } * index);
            let seconds = self.u64_at(at)?.cast_signed();
            let rest = if fine {
                self.u64_at(at.wrapping_add(8))?
            } else {
                0
            };
            // The rest is less than a second.
            if rest >= 1_000_000 {
                return Err(Errno::EINVAL);
            }
            let nanoseconds = rest as u32 * 1000;
            *set = Some(Time {
                seconds,
                nanoseconds,
            });
        }

        let resolved = if path == 0 && fd as u32 != AT_FDCWD as u32 {
            self.path_of_open(fd)?
        } else {
            self.find(fd, path, true)?
        };
        self.set_times(resolved, set, times == 0)
    }

    /// `mknod`, for regular files, FIFOs and sockets.
    pub(super) fn sys_mknod(&mut self, fd: u64, path: u64, mode: u64, device: u64) -> Answer {
        const S_IFCHR: u32 = 0o02_0000;
        const S_IFBLK: u32 = 0o06_0000;

        let (path, base) = self.path_and_base(fd, path)?;
        let mode = mode as u32;
        // Without a type it is a regular file (mknod(2)).
        let mode = if mode & S_IFMT == 0 {
            mode | S_IFREG
        } else {
            mode
        };

        match mode & S_IFMT {
            // Regular files, FIFOs and sockets.
            S_IFREG | 0o01_0000 | 0o14_0000 => {}
            S_IFCHR | S_IFBLK => {
                // Even the number 0:0, a whiteout, is for user 0 only outside of overlays.
                self.files.resolve(&base, &path, false)?;
                let is_whiteout = mode & S_IFMT == S_IFCHR && device as u32 == 0;
                return if self.files.own.identity.is_capable() || is_whiteout {
                    self.not_modelled("files that are devices", Errno::EPERM)
                } else {
                    Err(Errno::EPERM)
                };
            }
            // Only `mkdir` makes folders (mknod(2)).
            S_IFDIR => return Err(Errno::EPERM),
            _ => return Err(Errno::EINVAL),
        }

        let mode = if self.files.may_write_host() {
            self.without_set_ids(mode, 0)
        } else {
            mode
        };

        self.files.make_node(&base, &path, mode)?;
        self.created(&base, &path);
        Ok(0)
    }

    /// `openat2`.
    pub(super) fn sys_openat2(&mut self, fd: u64, path: u64, how: u64, size: u64) -> Answer {
        const SIZE_MIN: u64 = 24;
        /// All flags of `open`.
        const KNOWN: u64 = 0o3777_7703;
        const RESOLVE: u64 = 0x3f;

        // The first version of `struct open_how` has 24 bytes; more than a page is refused.
        match size {
            ..SIZE_MIN => return Err(Errno::EINVAL),
            SIZE_MIN..=4096 => {}
            _ => return Err(Errno::E2BIG),
        }

        let mut bytes = vec![0; size as usize];
        self.get(how, &mut bytes)?;
        // What this version does not know must be 0 (`copy_struct_from_user`).
        if bytes[SIZE_MIN as usize..].iter().any(|&byte| byte != 0) {
            return Err(Errno::E2BIG);
        }

        let word = |index: u64| self.u64_at(how.wrapping_add(8 * index));
        let (flags, mode, resolve) = (word(0)?, word(1)?, word(2)?);

        // Unlike `open`, it refuses flags that are not known (openat2(2)).
        let creates = flags & u64::from(o::CREAT) != 0 || flags & u64::from(o::TMPFILE) != 0;
        let is_wrong = flags & !KNOWN != 0 || mode & !0o7777 != 0 || mode != 0 && !creates;
        if is_wrong || resolve & !RESOLVE != 0 {
            return Err(Errno::EINVAL);
        }

        if resolve != 0 {
            return self.not_modelled("openat2 that restricts how names lead", Errno::EAGAIN);
        }
        self.sys_open(fd, path, flags, mode)
    }

    pub(super) fn sys_utimens(&mut self, fd: u64, path: u64, times: u64, flags: u64) -> Answer {
        let (set, sets_now) = self.times_at(times)?;
        // UTIME_OMIT twice: then even the path is not looked at (`fs/utimes.c`).
        if set == [None, None] {
            return Ok(0);
        }

        if flags as u32 & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) as u32 != 0 {
            return Err(Errno::EINVAL);
        }

        // Without a path it is about the descriptor.
        if path == 0 && fd as u32 != AT_FDCWD as u32 {
            let open = self.files.own.table.get(fd)?;
            if flags != 0 {
                return Err(Errno::EINVAL);
            }
            let has_name = open.borrow().has_name();
            // A file without a name keeps no times.
            return if has_name {
                self.set_times(self.path_of(&open)?, set, sets_now)
            } else {
                Ok(0)
            };
        }

        let resolved = match self.path_at(path)?.is_empty() {
            true if flags & AT_EMPTY_PATH != 0 => self.path_of_named(fd)?,
            _ => self.find(fd, path, flags & AT_SYMLINK_NOFOLLOW == 0)?,
        };
        self.set_times(resolved, set, sets_now)
    }

    fn set_times(&mut self, resolved: ResolvedPath, set: [Option<Time>; 2], now: bool) -> Answer {
        let seen = self.seen_node(&resolved);
        self.files.set_times(resolved, set[0], set[1], now)?;
        self.changed_attributes(seen)
    }

    pub(super) fn sys_access(&mut self, fd: u64, path: u64, mode: u64, flags: u64) -> Answer {
        const AT_EACCESS: u64 = 0x200;
        if mode & !7 != 0
            || flags as u32 & !(AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) as u32 != 0
        {
            return Err(Errno::EINVAL);
        }
        let effective = self.files.own.identity.clone();
        if flags & AT_EACCESS == 0 {
            self.files.own.identity = effective.as_real();
        }
        let attributes = self.attributes_to_access(fd, path, flags);
        let allowed = attributes.map(|a| self.files.allows(&a, mode as u32));
        self.files.own.identity = effective;
        if allowed? { Ok(0) } else { Err(Errno::EACCES) }
    }

    fn attributes_to_access(&self, fd: u64, path: u64, flags: u64) -> Answer<Attributes> {
        let attributes = match self.path_at(path)?.is_empty() {
            true if flags & AT_EMPTY_PATH != 0 => {
                let open = self.files.own.table.get_named(fd)?;
                self.files.attributes_of_open(&open.borrow())
            }
            _ => {
                let resolved = self.find(fd, path, flags & AT_SYMLINK_NOFOLLOW == 0)?;
                self.files.attributes(&resolved)
            }
        };
        Ok(attributes)
    }
}
