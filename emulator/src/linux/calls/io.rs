//! Reading and writing: `read`, `write` and related calls, `lseek`, `sendfile`.
//!
//! Source: Linux 6.12 `fs/read_write.c`, `fs/splice.c`.

use super::process_memory::space_of;
use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{Kind, Shared, o};
use crate::linux::handle::HandleKind;
use crate::linux::objects::event;
use crate::linux::signals::{Info, SIGPIPE};

/// Maximum size of one call, bytes (Linux `MAX_RW_COUNT`).
const COUNT_MAX: u64 = 0x7fff_f000;
/// Bytes transferred at once.
const CHUNK: usize = 1 << 16;

impl Kernel {
    /// The open file of a call that reads or writes `at` a position.
    fn open_at(&self, fd: u64, at: Option<u64>) -> Answer<Shared> {
        position(at)?;
        let open = self.files.own.table.get(fd)?;
        if at.is_some() && !open.borrow().is_seekable() {
            return Err(Errno::ESPIPE);
        }
        Ok(open)
    }

    pub(super) fn sys_read(&mut self, fd: u64, at: u64, count: u64, from: Option<u64>) -> Answer {
        let open = self.open_at(fd, from)?;
        if !open.borrow().can_read() {
            return Err(Errno::EBADF);
        }
        self.accessible(at, count)?;
        if is_object(&open) {
            return self.read_object(&open, &[(at, count)]);
        }
        let read = self.read_into(&open, at, count, from);
        if matches!(read, Ok(1..)) {
            self.open_event(&open, event::ACCESS);
        }
        read
    }

    fn read_into(&mut self, open: &Shared, at: u64, count: u64, from: Option<u64>) -> Answer {
        let count = count.min(COUNT_MAX);

        if space_of(open).is_some() {
            return self.read_process_memory(open, at, count, from);
        }
        // A thread may have got another name since the file was opened.
        self.refresh_name(open);

        // Only a file is read up to the last byte requested.
        let is_file = is_file(&open.borrow().kind);
        // In pieces: the caller's count must not decide how much memory is allocated.
        let mut buffer = vec![0; CHUNK.min(count as usize)];
        let mut done = 0;

        loop {
            let to = at.wrapping_add(done);
            let want = (count - done).min(CHUNK as u64) as usize;
            let room = self.writable(to, want);
            if room == 0 && done > 0 {
                break;
            }
            // Bad memory is an error only if there is something to read.
            let want = if room == 0 { want.min(1) } else { room };

            let from = from.map(|from| from.saturating_add(done));
            let read = match self.files.read(open, from, &mut buffer[..want]) {
                Ok(Some(read)) => read,
                Ok(None) if done == 0 => return self.wait_or_restart(),
                Err(error) if done == 0 => return Err(error),
                _ => break,
            };

            // A pipe gets back what could not be stored; nothing is lost.
            if let Err(error) = self.put(to, &buffer[..read]) {
                self.files.unread(open, from, &buffer[..read]);
                return if done == 0 { Err(error) } else { Ok(done) };
            }

            done += read as u64;
            if read < want || done == count || !is_file {
                break;
            }
        }
        Ok(done)
    }

    pub(super) fn sys_write(&mut self, fd: u64, at: u64, count: u64, to: Option<u64>) -> Answer {
        let open = self.open_at(fd, to)?;
        if !open.borrow().can_write() {
            return Err(Errno::EBADF);
        }
        if to.is_some() && matches!(open.borrow().kind, Kind::ThreadName(..)) {
            return Err(Errno::ESPIPE);
        }
        self.accessible(at, count)?;
        if is_object(&open) {
            return self.write_object(&open, &[(at, count)]);
        }
        let done = self.transferred().min(count);
        let at = at.wrapping_add(done);
        Ok(done + self.write_from(&open, at, count - done, to, done)?)
    }

    /// Writes a part of what a call writes, `before` bytes of which are written.
    fn write_from(
        &mut self,
        open: &Shared,
        at: u64,
        count: u64,
        to: Option<u64>,
        before: u64,
    ) -> Answer {
        // Linux transfers no more in one call (`MAX_RW_COUNT`).
        let count = count.min(COUNT_MAX);
        if space_of(open).is_some() {
            return self.write_process_memory(open, at, count, to);
        }

        let is_file = is_file(&open.borrow().kind);
        // In pieces: the caller's count must not decide how much memory is allocated.
        let mut buffer = vec![0; CHUNK.min(count as usize)];
        let mut done = 0;

        loop {
            let from = at.wrapping_add(done);
            let mut want = (count - done).min(CHUNK as u64) as usize;
            if let Err(error) = self.get(from, &mut buffer[..want]) {
                // A file takes the bytes before the memory that cannot be read.
                want = if is_file {
                    self.readable(from, want)
                } else {
                    0
                };
                if want == 0 {
                    return if done == 0 { Err(error) } else { Ok(done) };
                }
            }

            let to = to.map(|to| to.saturating_add(done));
            match self.write_bytes(open, to, &buffer[..want]) {
                Ok(Some(0)) if want > 0 => break,
                Ok(Some(written)) => {
                    done += written as u64;
                    // At a limit of its size.
                    if is_file && written < want {
                        break;
                    }
                }
                Ok(None) => match self.wait_or_restart() {
                    Err(Errno::WAITS) => {
                        // What is written stays written: the call continues behind it.
                        self.note_transferred(before + done);
                        return Err(Errno::WAITS);
                    }
                    Err(error) if before + done == 0 => return Err(error),
                    _ => break,
                },
                Err(error) if before + done == 0 => return Err(error),
                _ => break,
            }

            if done == count {
                break;
            }
        }
        Ok(done)
    }

    pub(super) fn write_bytes(
        &mut self,
        open: &Shared,
        to: Option<u64>,
        bytes: &[u8],
    ) -> Answer<Option<usize>> {
        if self.is_socket(open) {
            return self.send_bytes(open, bytes);
        }

        if let Kind::ThreadName(task, _) = open.borrow().kind {
            return self.rename_thread(task, bytes).map(Some);
        }

        // RLIMIT_FSIZE may leave only a part of them.
        let bytes = &bytes[..self.may_write(open, to, bytes.len())?];
        let written = self.files.write(open, to, bytes);

        // `pipe_write` sends the signal in addition to the error.
        if written == Err(Errno::EPIPE) {
            self.process.signals.send(Info::from_kernel(SIGPIPE));
        }

        if let Ok(Some(count)) = written {
            let at = {
                let open = open.borrow();
                match to {
                    // With O_APPEND always at the end, even with a position (pwrite(2), BUGS).
                    _ if open.flags & o::APPEND != 0 => {
                        open.size().unwrap_or(0).saturating_sub(count as u64)
                    }
                    Some(at) => at,
                    None => open.position.saturating_sub(count as u64),
                }
            };

            self.file_written(open, at, &bytes[..count]);
            if count > 0 {
                self.open_event(open, event::MODIFY);
            }
        }
        written
    }

    /// Waits; a signal restarts the call.
    pub(super) fn wait_or_restart(&mut self) -> Answer {
        self.wait_for_signal(Errno::ERESTARTSYS)
    }

    pub(super) fn sys_readv(&mut self, fd: u64, at: u64, count: u64, from: Option<u64>) -> Answer {
        let open = self.open_at(fd, from)?;
        if !open.borrow().can_read() {
            return Err(Errno::EBADF);
        }

        let vectors = self.vectors(at, count)?;
        if is_object(&open) {
            return if vectors.iter().all(|&(_, size)| size == 0) {
                Ok(0)
            } else {
                self.read_object(&open, &vectors)
            };
        }

        let mut done = 0;
        for (base, size) in vectors {
            // The position of `preadv` moves on with what is read.
            let from = from.map(|from| from.saturating_add(done));
            let read = match self.read_into(&open, base, size, from) {
                Ok(read) => read,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            };
            done += read;
            // Anything but a file returns what there is: it must not wait for more.
            if read < size || !is_file(&open.borrow().kind) {
                break;
            }
        }
        Ok(done)
    }

    pub(super) fn sys_writev(&mut self, fd: u64, at: u64, count: u64, to: Option<u64>) -> Answer {
        let open = self.open_at(fd, to)?;
        if !open.borrow().can_write() {
            return Err(Errno::EBADF);
        }

        let vectors = self.vectors(at, count)?;
        if is_object(&open) {
            return if vectors.iter().all(|&(_, size)| size == 0) {
                Ok(0)
            } else {
                self.write_object(&open, &vectors)
            };
        }

        // A call that waited has written the first bytes already.
        let (mut skipped, mut done) = (self.transferred(), 0);
        for (base, size) in vectors {
            let written_before = skipped.min(size);
            (skipped, done) = (skipped - written_before, done + written_before);
            let (base, size) = (base.wrapping_add(written_before), size - written_before);

            // The position of `pwritev` moves on with what is written.
            let to = to.map(|to| to.saturating_add(done));
            let written = match self.write_from(&open, base, size, to, done) {
                Err(Errno::WAITS) => return Err(Errno::WAITS),
                Ok(written) => written,
                Err(error) if done == 0 => return Err(error),
                // What was written counts; the error comes with the next call.
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
        let open = self.files.own.table.get(fd)?;
        if space_of(&open).is_some() {
            return Kernel::seek_process_memory(&open, offset, whence as u32);
        }

        let mut open = open.borrow_mut();
        // SEEK_HOLE, 4, is the last one.
        if whence as u32 > 4 {
            return Err(Errno::EINVAL);
        }

        // Devices and most objects accept any position and stay at 0 (`null_lseek`, `noop_llseek`).
        let has_none = matches!(&open.kind,
            Kind::Object(handle) if matches!(handle.sort, HandleKind::Socket | HandleKind::Terminal));
        if !has_none && matches!(open.kind, Kind::Device(_) | Kind::Object(_)) {
            return Ok(0);
        }

        let size = open.size()?;
        let offset = offset.cast_signed();
        let base = match whence as u32 {
            // SEEK_SET, SEEK_CUR, SEEK_END.
            0 => 0,
            1 => open.position,
            2 => size,
            // 4|SEEK_DATA, SEEK_HOLE.
            3 | 4 => {
                let at = u64::try_from(offset).ok().filter(|&at| at < size);
                let at = at.ok_or(Errno::ENXIO)?;
                open.position = open.kind.seek_hole(at, size, whence as u32 == 4)?;
                return Ok(open.position);
            }
            _ => return Err(Errno::EINVAL),
        };

        let position = base.checked_add_signed(offset);
        let position = position.filter(|&p| p <= i64::MAX as u64);
        let position = position.ok_or(Errno::EINVAL)?;

        // From its start, a folder is read anew.
        if position == 0
            && let Kind::Directory(names) = &mut open.kind
        {
            *names = None;
        }

        open.position = position;
        Ok(position)
    }

    pub(super) fn sys_sendfile(&mut self, out: u64, from: u64, offset: u64, count: u64) -> Answer {
        let start = match offset {
            0 => None,
            at => Some(self.u64_at(at)?),
        };

        let from = self.files.own.table.get(from)?;
        if !from.borrow().can_read() {
            return Err(Errno::EBADF);
        }
        if start.is_some() && !from.borrow().is_seekable() {
            return Err(Errno::ESPIPE);
        }

        // `rw_verify_area`: a position is a signed number.
        position(start)?;
        if count > i64::MAX as u64 {
            return Err(Errno::EINVAL);
        }

        let out = self.files.own.table.get(out)?;
        if !out.borrow().can_write() {
            return Err(Errno::EBADF);
        }

        // Linux writes with `sendfile` where the position is, so not with O_APPEND (sendfile(2)).
        let is_directory = matches!(from.borrow().kind, Kind::Directory(_));
        if is_directory || out.borrow().flags & o::APPEND != 0 {
            return Err(Errno::EINVAL);
        }

        // In pieces: the caller's count must not decide how much memory is allocated.
        let mut buffer = vec![0; CHUNK.min(count.min(COUNT_MAX) as usize)];
        let mut done = 0;
        while done < count.min(COUNT_MAX) {
            let want = (count - done).min(buffer.len() as u64) as usize;
            let at = start.map(|start| start.saturating_add(done));
            let at = position(at)?;

            let before = from.borrow().position;
            let Some(read) = self.files.read(&from, at, &mut buffer[..want])? else {
                return self.wait_or_restart();
            };
            if read == 0 {
                break;
            }

            let written = match self.write_bytes(&out, None, &buffer[..read]) {
                Ok(Some(written)) => written,
                Ok(None) => return self.wait_or_restart(),
                Err(error) if done == 0 => return Err(error),
                Err(_) => 0,
            };

            done += written as u64;
            // What the output did not take stays in the source.
            if written < read {
                if at.is_none() {
                    from.borrow_mut().position = before + written as u64;
                }
                break;
            }
        }

        // The new offset is stored; the file's own position did not move (sendfile(2)).
        if let Some(start) = start {
            self.put_u64(offset, start + done)?;
        }
        Ok(done)
    }
}

/// Whether reading and writing are the object's business (`calls::objects`).
fn is_object(open: &Shared) -> bool {
    matches!(open.borrow().kind, Kind::Object(_))
}

/// Whether reads and writes transfer everything requested, up to the end.
fn is_file(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::Host(_)
            | Kind::Memory(_)
            | Kind::Text(_)
            | Kind::ThreadName(..)
            | Kind::ProcessMemory(_)
            | Kind::Device(_)
    )
}

/// The position of a read or write, if it is not the current one.
fn position(at: Option<u64>) -> Answer<Option<u64>> {
    match at {
        Some(at) if at > i64::MAX as u64 => Err(Errno::EINVAL),
        at => Ok(at),
    }
}
