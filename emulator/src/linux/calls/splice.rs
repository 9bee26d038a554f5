//! `splice`: moving bytes between a pipe and a file, a socket or another pipe.
//!
//! Source: Linux 6.12 `fs/splice.c`.

use super::transfer::Incoming;
use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{Kind, PIPE_SIZE, Shared, o};
use crate::linux::signals::{Info, SIGPIPE};

/// `SPLICE_F_NONBLOCK`, and all flags.
const NONBLOCK: u32 = 2;
const FLAGS: u32 = 15;

/// What one end of a pipe holds, if it is one.
fn pipe_length(open: &Shared) -> Option<usize> {
    match &open.borrow().kind {
        Kind::Pipe(end) => Some(end.len()),
        _ => None,
    }
}

fn is_same_pipe(one: &Shared, other: &Shared) -> bool {
    match (&one.borrow().kind, &other.borrow().kind) {
        (Kind::Pipe(one), Kind::Pipe(other)) => one.is_same(other),
        _ => false,
    }
}

impl Kernel {
    pub(super) fn sys_splice(&mut self, args: [u64; 6]) -> Answer {
        let [from, from_at, to, to_at, count, flags] = args;
        if count == 0 {
            return Ok(0);
        }
        if flags as u32 & !FLAGS != 0 {
            return Err(Errno::EINVAL);
        }

        let from = self.files.own.table.get(from)?;
        let to = self.files.own.table.get(to)?;
        if !from.borrow().can_read() || !to.borrow().can_write() {
            return Err(Errno::EBADF);
        }

        let (from_pipe, to_pipe) = (pipe_length(&from), pipe_length(&to));
        let has_offset = |pipe: Option<usize>, at| pipe.is_some() && at != 0;
        if has_offset(from_pipe, from_at) || has_offset(to_pipe, to_at) {
            return Err(Errno::ESPIPE);
        }

        // At least one side is a pipe (splice(2)).
        if from_pipe.is_none() && to_pipe.is_none() || is_same_pipe(&from, &to) {
            return Err(Errno::EINVAL);
        }
        // A target in append mode is refused (splice(2)).
        if to.borrow().flags & o::APPEND != 0 {
            return Err(Errno::EINVAL);
        }

        let from_offset = self.splice_offset(&from, from_at)?;
        let to_offset = self.splice_offset(&to, to_at)?;
        let most = usize::try_from(count).unwrap_or(usize::MAX).min(PIPE_SIZE);
        let waits = flags as u32 & NONBLOCK == 0;

        // Room is found first: what was read but not written would be lost.
        let room = match to_pipe {
            Some(_) => match self.pipe_room(&to, waits)? {
                0 => return self.wait_or_restart(),
                room => room.min(most),
            },
            None => most,
        };

        let Some(bytes) = self.splice_read(&from, from_offset, room, waits)? else {
            return self.wait_or_restart();
        };

        let written = match self.write_bytes(&to, to_offset, &bytes) {
            Ok(Some(written)) => written,
            // Nothing was taken from a pipe yet; what was read of a file is read again.
            Ok(None) if from_pipe.is_some() => return self.wait_or_restart(),
            Ok(None) => 0,
            Err(error) => return Err(error),
        };

        // Only what was written is taken.
        self.splice_taken(&from, from_offset, written)?;
        for (at, offset) in [(from_at, from_offset), (to_at, to_offset)] {
            if let Some(offset) = offset {
                self.put_u64(at, offset + written as u64)?;
            }
        }
        Ok(written as u64)
    }

    /// The offset at an address, for a file that has positions.
    fn splice_offset(&self, open: &Shared, at: u64) -> Answer<Option<u64>> {
        match at {
            0 => Ok(None),
            _ if !open.borrow().is_seekable() => Err(Errno::EINVAL),
            at => match self.u64_at(at)? {
                offset if offset > i64::MAX as u64 => Err(Errno::EINVAL),
                offset => Ok(Some(offset)),
            },
        }
    }

    /// The room in a pipe; 0 if the call has to wait.
    fn pipe_room(&mut self, open: &Shared, waits: bool) -> Answer<usize> {
        let room = {
            let open = open.borrow();
            let Kind::Pipe(end) = &open.kind else {
                return Err(Errno::EBADF);
            };
            if end.lacks_reader() {
                None
            } else {
                Some(end.room())
            }
        };
        match room {
            None => {
                self.process.signals.send(Info::from_kernel(SIGPIPE));
                Err(Errno::EPIPE)
            }
            Some(0) if !waits || open.borrow().flags & o::NONBLOCK != 0 => Err(Errno::EAGAIN),
            Some(room) => Ok(room),
        }
    }

    /// The bytes to move, which stay where they are except in a socket; `None` to wait.
    fn splice_read(
        &mut self,
        from: &Shared,
        at: Option<u64>,
        most: usize,
        waits: bool,
    ) -> Answer<Option<Vec<u8>>> {
        if let Kind::Pipe(end) = &from.borrow().kind {
            // An empty pipe whose writers are gone is at its end: 0 bytes.
            let held = &end.pipe.borrow().bytes;
            if held.is_empty() && !end.lacks_writer() {
                return if waits && from.borrow().flags & o::NONBLOCK == 0 {
                    Ok(None)
                } else {
                    Err(Errno::EAGAIN)
                };
            }
            return Ok(Some(held.iter().take(most).copied().collect()));
        }

        // What was received from a socket cannot be left there.
        if self.is_socket(from) {
            return self.splice_receive(from, most, waits).map(Some);
        }

        let at = at.unwrap_or(from.borrow().position);
        let mut bytes = vec![0; most];
        let read = match &from.borrow().kind {
            Kind::Host(_) | Kind::Memory(_) | Kind::Device(_) => true,
            Kind::Directory(_) => return Err(Errno::EINVAL),
            _ => false,
        };

        if !read {
            let what = "splice from a file that is generated";
            return self.not_modelled(what, Errno::EINVAL);
        }

        // With a position given, the file's own does not move yet.
        let count = self.files.read(from, Some(at), &mut bytes)?;
        Ok(count.map(|count| {
            bytes.truncate(count);
            bytes
        }))
    }

    fn splice_receive(&mut self, from: &Shared, most: usize, waits: bool) -> Answer<Vec<u8>> {
        let id = self.socket_of(from)?;
        if !self.the_socket(id)?.is_stream() {
            self.not_modelled::<()>("splice from a socket of messages", Errno::EINVAL)?;
        }
        let is_empty = self.the_socket(id)?.inbox.is_empty();
        if is_empty || self.the_socket(id)?.is_listening() {
            self.why_nothing(id, waits && Kernel::waits(from))?;
            return Ok(Vec::new());
        }
        let mut others = Incoming::default();
        let (bytes, _) = self.take_stream(id, most as u64, 0, &mut others)?;
        self.consume(id, bytes.len())?;
        Ok(bytes)
    }

    /// Removes what was moved from a pipe, or goes on in a file.
    fn splice_taken(&mut self, from: &Shared, at: Option<u64>, count: usize) -> Answer<()> {
        let is_pipe = pipe_length(from).is_some();
        if is_pipe && count > 0 {
            let mut bytes = vec![0; count];
            self.files.read(from, None, &mut bytes)?;
        } else if at.is_none() && from.borrow().is_seekable() {
            from.borrow_mut().position += count as u64;
        }
        Ok(())
    }
}
