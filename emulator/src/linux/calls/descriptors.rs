//! Calls on descriptors other than reading and writing: closing, duplicating, `fcntl`, `ioctl`,
//! pipes and the like, file sizes.
//!
//! Source: Linux 6.12 `fs/fcntl.c`, `fs/ioctl.c`, `fs/open.c`, `mm/memfd.c`.

use super::locks::{GETLK, OFD_GETLK, OFD_SETLK, OFD_SETLKW, SETLK, SETLKW};
use super::mapped::same_file;
use super::pipe_size::{GET_PIPE_SIZE, SET_PIPE_SIZE};
use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{DEVICE, Description, Kind, PipeEnd, S_IFREG, Shared, o, seal};
use crate::linux::objects::{Object, event};
use crate::linux::resources::RLIMIT_NOFILE;
use std::ops::Range;

impl Kernel {
    pub(super) fn descriptors_max(&self) -> u64 {
        self.process.resources[RLIMIT_NOFILE][0]
    }

    /// Assigns the lowest free descriptor to an open file.
    pub(super) fn add_open(&mut self, open: Shared, flags: u64) -> Answer {
        let close_on_exec = flags & u64::from(o::CLOEXEC) != 0;
        let max = self.descriptors_max();
        self.files.own.table.insert(open, close_on_exec, 0, max)
    }

    pub(super) fn sys_close_range(&mut self, first: u64, last: u64, flags: u64) -> Answer {
        const UNSHARE: u64 = 2;
        const CLOEXEC: u64 = 4;
        if first as u32 > last as u32 || flags & !6 != 0 {
            return Err(Errno::EINVAL);
        }
        if flags & UNSHARE != 0 && !self.process.others.is_empty() {
            return self.not_modelled("threads with files of their own", Errno::EINVAL);
        }
        let range = u64::from(first as u32)..=u64::from(last as u32);
        let open: Vec<u64> = self.files.own.table.open().map(|(fd, _)| fd).collect();
        for fd in open.into_iter().filter(|fd| range.contains(fd)) {
            if flags & CLOEXEC != 0 {
                self.files.own.table.slot_mut(fd)?.close_on_exec = true;
            } else {
                self.files.own.table.close(fd)?;
            }
        }
        Ok(0)
    }

    pub(super) fn sys_dup(&mut self, fd: u64) -> Answer {
        let open = self.files.own.table.get_named(fd)?;
        self.add_open(open, 0)
    }

    /// `dup2`, or `dup3` with flags.
    pub(super) fn sys_dup2(&mut self, old: u64, new: u64, flags: Option<u64>) -> Answer {
        let open = self.files.own.table.get_named(old)?;
        let (old, new) = (u64::from(old as u32), u64::from(new as u32));
        if new >= self.descriptors_max() {
            return Err(Errno::EBADF);
        }
        let close_on_exec = match flags {
            None if old == new => return Ok(new),
            None => false,
            Some(flags) if old == new || flags & !u64::from(o::CLOEXEC) != 0 => {
                return Err(Errno::EINVAL);
            }
            Some(flags) => flags != 0,
        };
        self.files.own.table.set(new, open, close_on_exec);
        Ok(new)
    }

    pub(super) fn sys_fcntl(&mut self, fd: u64, command: u64, arg: u64) -> Answer {
        const DUPFD: u32 = 0;
        const DUPFD_CLOEXEC: u32 = 1030;
        const SET_OWNER: u32 = 8;
        const ADD_SEALS: u32 = 1033;
        const GET_SEALS: u32 = 1034;
        const GET_OWNER: u32 = 9;
        /// Flags that can be changed.
        const SET: u32 = o::APPEND | o::NONBLOCK;

        let open = self.files.own.table.get_named(fd)?;
        let command = command as u32;

        // A file that was opened with `O_PATH` has only these (`check_fcntl_cmd`).
        let is_path = matches!(open.borrow().kind, Kind::Path);
        if is_path && !matches!(command, 0..=3 | DUPFD_CLOEXEC) {
            return Err(Errno::EBADF);
        }

        if let Some(answer) = self.fcntl_owner(&open, command, arg) {
            return answer;
        }

        match command {
            DUPFD | DUPFD_CLOEXEC => {
                let max = self.descriptors_max();
                let from = u64::from(arg as u32);
                if from >= max {
                    return Err(Errno::EINVAL);
                }
                self.files
                    .own
                    .table
                    .insert(open, command != DUPFD, from, max)
            }
            // F_GETFD, F_SETFD.
            1 => Ok(self.files.own.table.slot(fd)?.close_on_exec.into()),
            2 => {
                self.files.own.table.slot_mut(fd)?.close_on_exec = arg & 1 != 0;
                Ok(0)
            }
            // F_GETFL, F_SETFL.
            3 => Ok(open.borrow().flags.into()),
            4 => {
                let is_async = arg as u32 & o::ASYNC != 0;
                if is_async != (open.borrow().flags & o::ASYNC != 0)
                    && !self.set_async(&open, is_async)
                    || arg as u32 & o::DIRECT != 0
                {
                    return self.not_modelled("fcntl: O_DIRECT and O_ASYNC", Errno::EINVAL);
                }

                // Linux ignores the other flags (`SETFL_MASK`).
                let flags = &mut open.borrow_mut().flags;
                *flags = *flags & !SET | arg as u32 & SET;
                Ok(0)
            }
            GETLK | OFD_GETLK => self.get_lock(&open, command, arg),
            SETLK | SETLKW | OFD_SETLK | OFD_SETLKW => self.set_lock(&open, command, arg),
            // No event is ever signalled.
            GET_OWNER => Ok(0),
            SET_OWNER if arg == 0 => Ok(0),
            GET_SEALS | ADD_SEALS => self.fcntl_seals(&open, command, arg),
            // F_GETLEASE: F_UNLCK.
            1025 if is_regular(&open.borrow().kind) => Ok(2),
            SET_PIPE_SIZE | GET_PIPE_SIZE => self.fcntl_pipe(&open, command, arg),
            SET_OWNER | 10..=17 | 1024..=1040 => {
                self.not_modelled("fcntl: owners, leases, notification, seals", Errno::EINVAL)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    pub(super) fn sys_ioctl(&mut self, fd: u64, command: u64, arg: u64) -> Answer {
        const FIONREAD: u32 = 0x541b;
        const FIONBIO: u32 = 0x5421;
        const FIONCLEX: u32 = 0x5450;
        const FIOCLEX: u32 = 0x5451;
        const FIOASYNC: u32 = 0x5452;
        const FIOQSIZE: u32 = 0x5460;
        /// The file system shares no blocks between files.
        const FICLONE: u32 = 0x4004_9409;
        const FICLONERANGE: u32 = 0x4020_940d;
        const FIEMAP: u32 = 0xc020_660b;

        let open = self.files.own.table.get(fd)?;
        if let Ok(id) = self.socket_of(&open)
            && let Some(answer) = self.socket_ioctl(id, command as u32, arg)
        {
            return answer;
        }

        // `do_vfs_ioctl` answers these five before a terminal is asked.
        if let Some(end) = self.terminal_of(&open)
            && !matches!(
                command as u32,
                FIONBIO | FIONCLEX | FIOCLEX | FIOASYNC | FIOQSIZE
            )
        {
            return self.terminal_ioctl(&open, end, command as u32, arg);
        }

        match command as u32 {
            command @ (FIONCLEX | FIOCLEX) => {
                self.files.own.table.slot_mut(fd)?.close_on_exec = command == FIOCLEX;
                Ok(0)
            }
            // The same bit as `O_NONBLOCK` of `fcntl`, which all descriptors of the open file
            // share.
            FIONBIO => {
                let on = self.u32_at(arg)? != 0;
                let flags = &mut open.borrow_mut().flags;
                *flags = *flags & !o::NONBLOCK | if on { o::NONBLOCK } else { 0 };
                Ok(0)
            }
            FIOASYNC if self.is_socket(&open) || self.terminal_of(&open).is_some() => {
                let on = self.u32_at(arg)? != 0;
                self.set_async(&open, on);
                Ok(0)
            }
            FIONREAD => {
                let count = {
                    let open = open.borrow();
                    match &open.kind {
                        Kind::Pipe(end) => end.len() as u64,
                        Kind::Object(handle) => match self.objects.get(handle.id) {
                            Some(Object::Inotify(inotify)) => inotify.bytes(),
                            _ => return Err(Errno::ENOTTY),
                        },
                        Kind::Stdin => match self.files.streams.available() {
                            Some(count) => count,
                            None => {
                                let what = "ioctl: number of bytes in standard input";
                                return self.not_modelled(what, Errno::ENOTTY);
                            }
                        },
                        // Negative past the end (`do_vfs_ioctl`).
                        Kind::Host(_) | Kind::Memory(_) => open.size()?.wrapping_sub(open.position),
                        _ => return Err(Errno::ENOTTY),
                    }
                };

                // An `int`, whatever the file's size.
                self.put_u32(arg, count as u32)?;
                Ok(0)
            }
            // There are no terminals.
            0x5400..=0x54ff if !matches!(command as u32, FIOASYNC | FIOQSIZE) => Err(Errno::ENOTTY),
            _ => match open.borrow().kind {
                Kind::Pipe(_) | Kind::Object(_) => Err(Errno::ENOTTY),
                Kind::Stdin | Kind::Stdout | Kind::Stderr => Err(Errno::ENOTTY),
                Kind::Host(_) | Kind::Memory(_) | Kind::Directory(_)
                    if matches!(command as u32, FICLONE | FICLONERANGE) =>
                {
                    Err(Errno::EOPNOTSUPP)
                }
                Kind::Host(_) | Kind::Memory(_) | Kind::Directory(_)
                    if !is_of_file_systems(command as u32) =>
                {
                    Err(Errno::ENOTTY)
                }
                // Where the blocks of a file are is not known.
                Kind::Host(_) | Kind::Memory(_) | Kind::Directory(_)
                    if command as u32 == FIEMAP =>
                {
                    Err(Errno::EOPNOTSUPP)
                }
                // ioctls of file systems and devices.
                _ => self.not_modelled("ioctl of a file, a folder or a device", Errno::ENOTTY),
            },
        }
    }

    pub(super) fn sys_pipe(&mut self, at: u64, flags: u64) -> Answer {
        if flags as u32 & !(o::CLOEXEC | o::NONBLOCK | o::DIRECT) != 0 {
            return Err(Errno::EINVAL);
        }
        if flags as u32 & o::DIRECT != 0 {
            return self.not_modelled("packet pipes", Errno::EINVAL);
        }

        // Of these flags only this one belongs to the open file; `O_CLOEXEC` is the descriptor's.
        let kept = flags as u32 & o::NONBLOCK;

        // Checked before anything is made, so that a refusal leaves nothing behind.
        self.may_add_objects(2)?;
        let (reader, writer) = PipeEnd::pair(self.objects.add_pipe());
        let reader = Description::new(Kind::Pipe(reader), kept, b"pipe");
        let writer = Description::new(Kind::Pipe(writer), kept | o::WRONLY, b"pipe");

        let first = self.add_open(reader.shared(), flags)?;
        let second = match self.add_open(writer.shared(), flags) {
            Ok(second) => second,
            Err(error) => {
                self.files.own.table.close(first)?;
                return Err(error);
            }
        };

        let both = (first | second << 32).to_le_bytes();
        if let Err(error) = self.put(at, &both) {
            self.files.own.table.close(first)?;
            self.files.own.table.close(second)?;
            return Err(error);
        }
        Ok(0)
    }

    pub(super) fn sys_memfd(&mut self, name: u64, flags: u64) -> Answer {
        const CLOEXEC: u32 = 1;
        const ALLOW_SEALING: u32 = 2;
        const HUGETLB: u32 = 4;
        const NOEXEC_SEAL: u32 = 8;
        const EXEC: u32 = 16;
        /// The longest name without its prefix and NUL.
        const NAME_MAX: usize = 249;

        let flags = flags as u32;
        // With huge pages, bits 26 to 31 are the size of one (`MFD_HUGE_SHIFT`).
        if flags & HUGETLB != 0 && flags & !(31 | 63 << 26) == 0 {
            return self.not_modelled("memfd_create with huge pages", Errno::ENOSYS);
        }
        let known = CLOEXEC | ALLOW_SEALING | NOEXEC_SEAL | EXEC;
        if flags & !known != 0 || flags & NOEXEC_SEAL != 0 && flags & EXEC != 0 {
            return Err(Errno::EINVAL);
        }

        let name = self.name_at(name, NAME_MAX + 1)?;
        if name.len() > NAME_MAX {
            return Err(Errno::EINVAL);
        }

        // Executable, unless it is sealed against that.
        let mode = if flags & NOEXEC_SEAL != 0 {
            0o666
        } else {
            0o777
        };

        let inode = self.files.new_inode(S_IFREG | mode, b"/dev/shm");

        // It has no name, and so ends with its last descriptor.
        inode.borrow_mut().links = 0;
        // `MFD_NOEXEC_SEAL` implies `MFD_ALLOW_SEALING`; without both, no seal can be added.
        inode.borrow_mut().seals = if flags & NOEXEC_SEAL != 0 {
            seal::EXEC
        } else if flags & ALLOW_SEALING != 0 {
            0
        } else {
            seal::SEAL
        };

        let path = [b"/memfd:", &name[..], b" (deleted)"].concat();
        let open = Description::new(Kind::Memory(inode), o::RDWR | o::LARGEFILE, &path);
        let close_on_exec = if flags & CLOEXEC != 0 { o::CLOEXEC } else { 0 };
        self.add_open(open.shared(), close_on_exec.into())
    }

    /// `F_ADD_SEALS` and `F_GET_SEALS`.
    fn fcntl_seals(&mut self, open: &Shared, command: u32, arg: u64) -> Answer {
        const ADD: u32 = 1033;
        const ALL: u32 = 0x3f;

        let open = open.borrow();
        let inode = match &open.kind {
            // Files on the host's file systems have none.
            Kind::Memory(inode) if inode.borrow().device == DEVICE => inode.clone(),
            _ => return Err(Errno::EINVAL),
        };

        if command != ADD {
            return Ok(inode.borrow().seals.into());
        }
        if !open.can_write() {
            return Err(Errno::EPERM);
        }

        let new = arg as u32;
        if arg > ALL.into() {
            return Err(Errno::EINVAL);
        }

        let old = inode.borrow().seals;
        if old & seal::SEAL != 0 {
            return Err(Errno::EPERM);
        }

        // A mapping that can be written could still change the file (`mapping_deny_writable`).
        if new & seal::WRITE & !old != 0 {
            let key = (inode.borrow().device, inode.borrow().number);
            let writes = |process: &crate::linux::process::Process| {
                let mapped = process.layout.mappings_of(key);
                let mut mapped = mapped.iter();
                mapped.any(|(_, file)| file.is_shared && file.is_writable)
            };
            if self.all_processes().any(writes) {
                return Err(Errno::EBUSY);
            }
        }

        // `F_SEAL_EXEC` of an executable file seals its contents, too (`memfd_add_seals`).
        let executable = inode.borrow().mode & 0o111 != 0;
        let implied = if new & seal::EXEC != 0 && executable {
            seal::SHRINK | seal::GROW | seal::WRITE | seal::FUTURE_WRITE
        } else {
            0
        };

        inode.borrow_mut().seals = old | new | implied;
        Ok(0)
    }

    pub(super) fn sys_ftruncate(&mut self, fd: u64, size: u64) -> Answer {
        if size > i64::MAX as u64 {
            return Err(Errno::EINVAL);
        }
        let open = self.files.own.table.get(fd)?;
        self.resize(&open, size)
    }

    fn resize(&mut self, open: &Shared, size: u64) -> Answer {
        if !open.borrow().can_write() {
            // Not EBADF (`fs/open.c`).
            return Err(Errno::EINVAL);
        }

        let old = open.borrow().size().unwrap_or(0);

        match &open.borrow().kind {
            Kind::Host(_) | Kind::Memory(_) => {
                let old = open.borrow().size()?;
                self.may_resize(old, size)?;
            }
            // It has no size to change.
            Kind::ThreadName(..) => return Ok(0),
            _ => return Err(Errno::EINVAL),
        }

        match &open.borrow().kind {
            Kind::Host(file) => file.set_len(size)?,
            Kind::Memory(inode) => {
                let mut inode = inode.borrow_mut();
                let forbids = match size.cmp(&old) {
                    std::cmp::Ordering::Less => seal::SHRINK,
                    std::cmp::Ordering::Equal => 0,
                    std::cmp::Ordering::Greater => seal::GROW,
                };
                // EPERM, as for a file that is sealed as a whole (`shmem_setattr`).
                if inode.seals & forbids != 0 {
                    return Err(Errno::EPERM);
                }
                inode.resize(size)?;
                (inode.modified, inode.changed) = (self.files.now, self.files.now);
            }
            _ => return Err(Errno::EINVAL),
        }

        // Mappings show the new end at once.
        self.file_resized(open, old);
        self.open_event(open, event::MODIFY);
        Ok(0)
    }

    /// `fallocate` with `FALLOC_FL_KEEP_SIZE`, with or without `FALLOC_FL_PUNCH_HOLE`, which all
    /// file systems support; other modes depend on the file system.
    pub(super) fn sys_fallocate(&mut self, fd: u64, mode: u64, from: u64, size: u64) -> Answer {
        const KEEP_SIZE: u32 = 1;
        const PUNCH: u32 = 2 | KEEP_SIZE;

        let open = self.files.own.table.get(fd)?;
        let (from, size) = (from.cast_signed(), size.cast_signed());

        // The order of these checks is that of `vfs_fallocate` (`fs/open.c`).
        if from < 0 || size <= 0 {
            return Err(Errno::EINVAL);
        }

        let mode = mode as u32;
        if !matches!(mode, 0 | KEEP_SIZE | PUNCH) {
            return Err(Errno::EOPNOTSUPP);
        }
        if !open.borrow().can_write() {
            return Err(Errno::EBADF);
        }

        match &open.borrow().kind {
            Kind::Pipe(_) => return Err(Errno::ESPIPE),
            Kind::Stdin | Kind::Stdout | Kind::Stderr => return Err(Errno::ESPIPE),
            Kind::Directory(_) => return Err(Errno::EISDIR),
            kind if !is_regular(kind) => return Err(Errno::ENODEV),
            _ => {}
        }

        let end = from.checked_add(size).ok_or(Errno::EFBIG)?.cast_unsigned();
        let (from, now) = (from.cast_unsigned(), open.borrow().size()?);
        match mode {
            // Only mode 0 makes the file larger (fallocate(2)).
            0 if end > now => {
                self.resize(&open, end)?;
                self.allocate_blocks(&open, from..end)
            }
            0 | KEEP_SIZE => self.allocate_blocks(&open, from..end),
            _ => self.punch_hole(&open, from..end),
        }
    }

    /// Makes room for a range of a file; the size stays.
    fn allocate_blocks(&mut self, open: &Shared, range: Range<u64>) -> Answer {
        if let Kind::Memory(inode) = &open.borrow().kind {
            inode.borrow_mut().allocate(range)?;
        }
        Ok(0)
    }

    /// Makes a hole, which is zero; the size stays.
    fn punch_hole(&mut self, open: &Shared, range: Range<u64>) -> Answer {
        let kind = same_file(&open.borrow().kind).ok_or(Errno::ENODEV)?;
        // In memory a hole frees its pages; on the host zeros are written.
        if let Kind::Memory(inode) = &kind {
            let forbids = seal::WRITE | seal::FUTURE_WRITE;
            let mut inode = inode.borrow_mut();
            if inode.seals & forbids != 0 {
                return Err(Errno::EPERM);
            }
            inode.punch(range.clone());
            (inode.modified, inode.changed) = (self.files.now, self.files.now);
            drop(inode);
            self.file_punched(open, range);
            return Ok(0);
        }

        // Without `O_APPEND`, which would write elsewhere.
        let file = Description::new(kind, o::RDWR, &open.borrow().path).shared();
        let (mut at, end) = (range.start, range.end.min(file.borrow().size()?));
        while at < end {
            let zeros = [0; 4096];
            let count = (end - at).min(zeros.len() as u64) as usize;
            let written = self.write_bytes(&file, Some(at), &zeros[..count])?;
            at += written.filter(|&w| w > 0).ok_or(Errno::EIO)? as u64;
        }
        Ok(0)
    }

    pub(super) fn sys_fsync(&mut self, fd: u64) -> Answer {
        let open = self.files.own.table.get(fd)?;
        let open = open.borrow();
        match &open.kind {
            Kind::Directory(_) => Ok(0),
            kind if is_regular(kind) => Ok(0),
            _ => Err(Errno::EINVAL),
        }
    }

    /// `sync_file_range`.
    pub(super) fn sys_sync_range(&mut self, fd: u64, from: u64, size: u64, flags: u64) -> Answer {
        const FLAGS: u32 = 7;
        let open = self.files.own.table.get(fd)?;
        let (from, size) = (from.cast_signed(), size.cast_signed());
        let end = from.checked_add(size);
        if flags as u32 & !FLAGS != 0 || from < 0 || end.is_none_or(|end| end < from) {
            return Err(Errno::EINVAL);
        }
        match open.borrow().kind {
            Kind::Directory(_) => Ok(0),
            ref kind if is_regular(kind) => Ok(0),
            _ => Err(Errno::ESPIPE),
        }
    }

    pub(super) fn sys_fadvise(&mut self, fd: u64, size: u64, advice: u64) -> Answer {
        const ADVICE_MAX: u32 = 5;
        let open = self.files.own.table.get(fd)?;
        let is_pipe = !open.borrow().is_seekable();
        match open.borrow().kind {
            Kind::Object(_) => {}
            _ if is_pipe => return Err(Errno::ESPIPE),
            _ => {}
        }
        if size > i64::MAX as u64 || advice as u32 > ADVICE_MAX {
            Err(Errno::EINVAL)
        } else {
            Ok(0)
        }
    }

    pub(super) fn sys_readahead(&mut self, fd: u64) -> Answer {
        let open = self.files.own.table.get(fd)?;
        let open = open.borrow();
        if !open.can_read() {
            Err(Errno::EBADF)
        } else if !is_regular(&open.kind) {
            Err(Errno::EINVAL)
        } else {
            Ok(0)
        }
    }
}

fn is_regular(kind: &Kind) -> bool {
    matches!(kind, Kind::Host(_) | Kind::Memory(_))
}

/// Whether an ioctl is one that file systems answer (Linux 6.12 `do_vfs_ioctl`, `ext4_ioctl`); all
/// others are unknown to them.
fn is_of_file_systems(command: u32) -> bool {
    const FIBMAP: u32 = 1;
    const FIGETBSZ: u32 = 2;
    /// Second bytes: files, clones, volume labels, versions, encryption and verity.
    const GROUPS: [u32; 5] = [0x94, 0x58, 0x76, 0x66, 0x15];
    matches!(command, FIBMAP | FIGETBSZ) || GROUPS.contains(&(command >> 8 & 0xff))
}
