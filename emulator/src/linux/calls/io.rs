//! Reading and writing, and what else is done with descriptors.

use crate::linux::Process;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{Description, Kind, PIPE_SIZE, PipeEnd, S_IFREG, Shared, o};
use crate::linux::outcome::Notice;
use crate::linux::signals::{Info, SIGPIPE};

/// Most bytes of one call (Linux `MAX_RW_COUNT`).
const COUNT_MAX: u64 = 0x7fff_f000;
/// Bytes that are moved at once.
const CHUNK: usize = 1 << 16;
/// The resource that limits descriptors (`RLIMIT_NOFILE`).
const RLIMIT_NOFILE: usize = 7;

impl Process {
    pub(super) fn descriptors_max(&self) -> u64 {
        self.resources[RLIMIT_NOFILE][0]
    }

    /// Gives an open file the lowest free descriptor.
    pub(super) fn add_open(&mut self, open: Shared, flags: u64) -> Answer {
        let close_on_exec = flags & u64::from(o::CLOEXEC) != 0;
        let max = self.descriptors_max();
        self.files.table.insert(open, close_on_exec, 0, max)
    }

    pub(super) fn sys_read(&mut self, fd: u64, at: u64, count: u64, from: Option<u64>) -> Answer {
        let open = self.files.table.get(fd)?;
        self.read_into(&open, at, count, position(from)?)
    }

    fn read_into(&mut self, open: &Shared, at: u64, count: u64, from: Option<u64>) -> Answer {
        let count = count.min(COUNT_MAX);
        let mut buffer = vec![0; CHUNK.min(count as usize)];
        let mut done = 0;
        loop {
            let want = (count - done).min(CHUNK as u64) as usize;
            let from = from.map(|from| from + done);
            let read = match self.files.read(open, from, &mut buffer[..want]) {
                Ok(Some(read)) => read,
                Ok(None) if done == 0 => return self.wait_or_restart("read"),
                Err(error) if done == 0 => return Err(error),
                _ => break,
            };
            if let Err(error) = self.put(at.wrapping_add(done), &buffer[..read]) {
                return if done == 0 { Err(error) } else { Ok(done) };
            }
            done += read as u64;
            // Only a file is read to the last byte asked for.
            let kind = &open.borrow().kind;
            let is_file = matches!(kind, Kind::Host(_) | Kind::Memory(_) | Kind::Device(_));
            if read < want || done == count || !is_file {
                break;
            }
        }
        Ok(done)
    }

    pub(super) fn sys_write(&mut self, fd: u64, at: u64, count: u64, to: Option<u64>) -> Answer {
        let open = self.files.table.get(fd)?;
        self.write_from(&open, at, count, position(to)?)
    }

    fn write_from(&mut self, open: &Shared, at: u64, count: u64, to: Option<u64>) -> Answer {
        let count = count.min(COUNT_MAX);
        let mut buffer = vec![0; CHUNK.min(count as usize)];
        let mut done = 0;
        loop {
            let want = (count - done).min(CHUNK as u64) as usize;
            if let Err(error) = self.get(at.wrapping_add(done), &mut buffer[..want]) {
                return if done == 0 { Err(error) } else { Ok(done) };
            }
            let to = to.map(|to| to + done);
            match self.write_bytes(open, to, &buffer[..want]) {
                Ok(Some(0)) if want > 0 => break,
                Ok(Some(written)) => done += written as u64,
                Ok(None) if done == 0 => return self.wait_or_restart("write"),
                Err(error) if done == 0 => return Err(error),
                _ => break,
            }
            if done == count {
                break;
            }
        }
        Ok(done)
    }

    fn write_bytes(
        &mut self,
        open: &Shared,
        to: Option<u64>,
        bytes: &[u8],
    ) -> Answer<Option<usize>> {
        let written = self.files.write(open, to, bytes);
        if written == Err(Errno::EPIPE) {
            self.signals.send(Info::from_kernel(SIGPIPE));
        }
        written
    }

    /// Only a timer's signal can end this.
    fn wait_or_restart(&mut self, call: &'static str) -> Answer {
        if self.sleep_until_signal(None) {
            return Err(Errno::ERESTARTSYS);
        }
        Err(self.blocked(call))
    }

    pub(super) fn sys_readv(&mut self, fd: u64, at: u64, count: u64, from: Option<u64>) -> Answer {
        let open = self.files.table.get(fd)?;
        let mut done = 0;
        for (base, size) in self.vectors(at, count)? {
            let from = position(from)?.map(|from| from + done);
            let read = match self.read_into(&open, base, size, from) {
                Ok(read) => read,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            };
            done += read;
            if read < size || !matches!(open.borrow().kind, Kind::Host(_) | Kind::Memory(_)) {
                break;
            }
        }
        Ok(done)
    }

    pub(super) fn sys_writev(&mut self, fd: u64, at: u64, count: u64, to: Option<u64>) -> Answer {
        let open = self.files.table.get(fd)?;
        let mut done = 0;
        for (base, size) in self.vectors(at, count)? {
            let to = position(to)?.map(|to| to + done);
            let written = match self.write_from(&open, base, size, to) {
                Ok(written) => written,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            };
            done += written;
            if written < size {
                break;
            }
        }
        Ok(done)
    }

    pub(super) fn sys_lseek(&mut self, fd: u64, offset: u64, whence: u64) -> Answer {
        let open = self.files.table.get(fd)?;
        let mut open = open.borrow_mut();
        let size = open.size()?;
        let offset = offset.cast_signed();
        let base = match whence as u32 {
            0 => 0,
            1 => open.position,
            2 => size,
            // Data is everywhere, and a hole at the end.
            3 | 4 => {
                let at = u64::try_from(offset).ok().filter(|&at| at < size);
                let at = at.ok_or(Errno::ENXIO)?;
                open.position = if whence == 3 { at } else { size };
                return Ok(open.position);
            }
            _ => return Err(Errno::EINVAL),
        };
        let position = base.checked_add_signed(offset);
        let position = position.filter(|&p| p <= i64::MAX as u64);
        let position = position.ok_or(Errno::EINVAL)?;
        if position == 0
            && let Kind::Directory(names) = &mut open.kind
        {
            *names = None;
        }
        open.position = position;
        Ok(position)
    }

    pub(super) fn sys_close_range(&mut self, first: u64, last: u64, flags: u64) -> Answer {
        const CLOEXEC: u64 = 4;
        if first as u32 > last as u32 || flags & !6 != 0 {
            return Err(Errno::EINVAL);
        }
        let range = u64::from(first as u32)..=u64::from(last as u32);
        let open: Vec<u64> = self.files.table.open().map(|(fd, _)| fd).collect();
        for fd in open.into_iter().filter(|fd| range.contains(fd)) {
            if flags & CLOEXEC != 0 {
                self.files.table.slot_mut(fd)?.close_on_exec = true;
            } else {
                self.files.table.close(fd)?;
            }
        }
        Ok(0)
    }

    pub(super) fn sys_dup(&mut self, fd: u64) -> Answer {
        let open = self.files.table.get(fd)?;
        self.add_open(open, 0)
    }

    /// `dup2`, or `dup3` with flags.
    pub(super) fn sys_dup2(&mut self, old: u64, new: u64, flags: Option<u64>) -> Answer {
        let open = self.files.table.get(old)?;
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
        self.files.table.set(new, open, close_on_exec);
        Ok(new)
    }

    pub(super) fn sys_fcntl(&mut self, fd: u64, command: u64, arg: u64) -> Answer {
        const DUPFD_CLOEXEC: u32 = 1030;
        const UNLOCKED: [u8; 2] = [2, 0];
        /// Flags that can be changed.
        const SET: u32 = o::APPEND | o::NONBLOCK;
        let open = self.files.table.get(fd)?;
        match command as u32 {
            command @ (0 | DUPFD_CLOEXEC) => {
                let max = self.descriptors_max();
                if arg >= max {
                    return Err(Errno::EINVAL);
                }
                self.files.table.insert(open, command != 0, arg, max)
            }
            1 => Ok(self.files.table.slot(fd)?.close_on_exec.into()),
            2 => {
                self.files.table.slot_mut(fd)?.close_on_exec = arg & 1 != 0;
                Ok(0)
            }
            3 => {
                let open = open.borrow();
                let is_file = matches!(open.kind, Kind::Host(_) | Kind::Memory(_) | Kind::Text(_));
                let large = if is_file { o::LARGEFILE } else { 0 };
                Ok((open.flags | large).into())
            }
            4 => {
                let flags = &mut open.borrow_mut().flags;
                *flags = *flags & !SET | arg as u32 & SET;
                Ok(0)
            }
            // Nobody else has locks.
            5 | 36 => self.put(arg, &UNLOCKED).map(|()| 0),
            6 | 7 | 37 | 38 => Ok(0),
            // The owner of signals, and leases.
            8..=16 => Ok(0),
            1031 | 1032 => match &open.borrow().kind {
                Kind::PipeReader(_) | Kind::PipeWriter(_) => Ok(PIPE_SIZE as u64),
                _ => Err(Errno::EBADF),
            },
            _ => Err(Errno::EINVAL),
        }
    }

    pub(super) fn sys_ioctl(&mut self, fd: u64, command: u64, arg: u64) -> Answer {
        const FIONREAD: u32 = 0x541b;
        const FIONBIO: u32 = 0x5421;
        const FIONCLEX: u32 = 0x5450;
        const FIOCLEX: u32 = 0x5451;
        let open = self.files.table.get(fd)?;
        match command as u32 {
            command @ (FIONCLEX | FIOCLEX) => {
                self.files.table.slot_mut(fd)?.close_on_exec = command == FIOCLEX;
                Ok(0)
            }
            FIONBIO => {
                let on = self.u32_at(arg)? != 0;
                let flags = &mut open.borrow_mut().flags;
                *flags = *flags & !o::NONBLOCK | if on { o::NONBLOCK } else { 0 };
                Ok(0)
            }
            FIONREAD => {
                let count = {
                    let open = open.borrow();
                    match &open.kind {
                        Kind::PipeReader(end) => end.bytes.borrow().len() as u64,
                        Kind::Stdin => self.files.streams.available().unwrap_or(0) as u64,
                        Kind::Host(_) | Kind::Memory(_) => {
                            open.size()?.saturating_sub(open.position)
                        }
                        _ => return Err(Errno::ENOTTY),
                    }
                };
                self.put_u32(arg, count.min(i32::MAX as u64) as u32)?;
                Ok(0)
            }
            // There are no terminals.
            _ => Err(Errno::ENOTTY),
        }
    }

    pub(super) fn sys_pipe(&mut self, at: u64, flags: u64) -> Answer {
        if flags as u32 & !(o::CLOEXEC | o::NONBLOCK | 0o40000) != 0 {
            return Err(Errno::EINVAL);
        }
        let kept = flags as u32 & o::NONBLOCK;
        let (reader, writer) = PipeEnd::pair();
        let reader = Description::new(Kind::PipeReader(reader), kept, b"pipe");
        let writer = Description::new(Kind::PipeWriter(writer), kept | o::WRONLY, b"pipe");
        let first = self.add_open(reader.shared(), flags)?;
        let second = match self.add_open(writer.shared(), flags) {
            Ok(second) => second,
            Err(error) => {
                self.files.table.close(first)?;
                return Err(error);
            }
        };
        let both = (first | second << 32).to_le_bytes();
        if let Err(error) = self.put(at, &both) {
            self.files.table.close(first)?;
            self.files.table.close(second)?;
            return Err(error);
        }
        Ok(0)
    }

    pub(super) fn sys_eventfd(&mut self, initial: u64, flags: u64) -> Answer {
        if flags & 1 != 0 {
            self.notice(Notice::Part("eventfd as a semaphore"));
            return Err(Errno::EINVAL);
        }
        let kind = Kind::Event(u64::from(initial as u32));
        let kept = flags as u32 & o::NONBLOCK | o::RDWR;
        let open = Description::new(kind, kept, b"anon_inode:[eventfd]");
        self.add_open(open.shared(), flags)
    }

    pub(super) fn sys_memfd(&mut self, name: u64, flags: u64) -> Answer {
        let name = self.name_at(name, 249)?;
        let inode = self.files.new_inode(S_IFREG | 0o777);
        inode.borrow_mut().links = 0;
        let path = [b"/memfd:", &name[..], b" (deleted)"].concat();
        let open = Description::new(Kind::Memory(inode), o::RDWR, &path);
        let close_on_exec = if flags & 1 != 0 { o::CLOEXEC } else { 0 };
        self.add_open(open.shared(), close_on_exec.into())
    }

    pub(super) fn sys_sendfile(&mut self, out: u64, from: u64, offset: u64, count: u64) -> Answer {
        let (out, from) = (self.files.table.get(out)?, self.files.table.get(from)?);
        let start = match offset {
            0 => None,
            at => Some(self.u64_at(at)?),
        };
        let mut buffer = vec![0; CHUNK.min(count.min(COUNT_MAX) as usize)];
        let mut done = 0;
        while done < count.min(COUNT_MAX) {
            let want = (count - done).min(buffer.len() as u64) as usize;
            let at = start.map(|start| start.saturating_add(done));
            let at = position(at)?;
            let before = from.borrow().position;
            let Some(read) = self.files.read(&from, at, &mut buffer[..want])? else {
                return Err(self.blocked("sendfile"));
            };
            if read == 0 {
                break;
            }
            let written = match self.write_bytes(&out, None, &buffer[..read]) {
                Ok(Some(written)) => written,
                Ok(None) => return Err(self.blocked("sendfile")),
                Err(error) if done == 0 => return Err(error),
                Err(_) => 0,
            };
            done += written as u64;
            if written < read {
                if at.is_none() {
                    from.borrow_mut().position = before + written as u64;
                }
                break;
            }
        }
        if let Some(start) = start {
            self.put_u64(offset, start + done)?;
        }
        Ok(done)
    }

    pub(super) fn sys_ftruncate(&mut self, fd: u64, size: u64) -> Answer {
        let open = self.files.table.get(fd)?;
        let open = open.borrow();
        if !open.can_write() || size > i64::MAX as u64 {
            return Err(Errno::EINVAL);
        }
        match &open.kind {
            Kind::Host(file) => file.set_len(size)?,
            Kind::Memory(inode) => {
                let mut inode = inode.borrow_mut();
                inode.resize(size)?;
                (inode.modified, inode.changed) = (self.files.now, self.files.now);
            }
            _ => return Err(Errno::EINVAL),
        }
        Ok(0)
    }

    pub(super) fn sys_fallocate(&mut self, fd: u64, mode: u64, from: u64, size: u64) -> Answer {
        let open = self.files.table.get(fd)?;
        let end = from.checked_add(size).ok_or(Errno::EFBIG)?;
        let (writable, now) = (open.borrow().can_write(), open.borrow().size()?);
        match mode as u32 {
            _ if !writable => Err(Errno::EBADF),
            // Keeps the size.
            1 => Ok(0),
            0 if end <= now => Ok(0),
            0 => self.sys_ftruncate(fd, end),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }
}

/// Where a file is read or written, if not where it stands.
fn position(at: Option<u64>) -> Answer<Option<u64>> {
    match at {
        Some(at) if at > i64::MAX as u64 => Err(Errno::EINVAL),
        at => Ok(at),
    }
}
