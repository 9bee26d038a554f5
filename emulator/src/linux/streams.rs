//! Standard input, output and error: those of this process, or bytes in memory. The program
//! sees pipes, whatever they are.

use super::errno::{Answer, Errno};
use nix::poll::{PollFd, PollFlags};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What standard input is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// That of this process.
    Inherit,
    /// These bytes.
    Bytes(Vec<u8>),
}

/// Where standard output or error goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// To that of this process.
    Inherit,
    /// Into memory: [`super::Process::stdout`], [`super::Process::stderr`].
    Capture,
}

/// How far the streams were.
#[derive(Debug)]
pub(super) struct StreamsMark {
    read: usize,
    captured: [usize; 2],
}

/// All three.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    stdin: Input,
    /// Bytes of [`Input::Bytes`] that were read.
    read: usize,
    outputs: [Output; 2],
    captured: [Vec<u8>; 2],
    captured_max: usize,
    patience: Patience,
    late: bool,
}

/// How long the streams of this process are waited for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Patience {
    /// Until then.
    pub(super) deadline: Option<Instant>,
    /// Until this becomes true.
    pub(super) stop: Option<&'static AtomicBool>,
}

impl Streams {
    pub(super) fn new(
        stdin: Input,
        outputs: [Output; 2],
        captured_max: usize,
        patience: Patience,
    ) -> Streams {
        Streams {
            stdin,
            read: 0,
            outputs,
            captured: [Vec::new(), Vec::new()],
            captured_max,
            patience,
            late: false,
        }
    }

    /// How far they are.
    pub(super) fn mark(&self) -> StreamsMark {
        StreamsMark {
            read: self.read,
            captured: [0, 1].map(|which| self.captured[which].len()),
        }
    }

    /// Back to where they were: what was captured since is gone, what was read is there again.
    /// What went to this process's streams, or came from them, is not taken back.
    pub(super) fn restore(&mut self, mark: &StreamsMark) {
        self.read = mark.read;
        for (captured, len) in self.captured.iter_mut().zip(mark.captured) {
            captured.truncate(len);
        }
    }

    /// What was captured of standard output, or error.
    pub(super) fn captured(&self, is_error: bool) -> &[u8] {
        &self.captured[usize::from(is_error)]
    }

    /// Bytes that were read go back to where they came from; a terminal or a pipe of the host
    /// does not take them.
    pub(super) fn unread(&mut self, bytes: &[u8]) {
        self.read = self.read.saturating_sub(bytes.len());
    }

    /// Bytes that can be read at once; `None` if only the host knows.
    pub(super) fn available(&self) -> Option<u64> {
        match &self.stdin {
            Input::Inherit => None,
            Input::Bytes(bytes) => Some((bytes.len() - self.read) as u64),
        }
    }

    /// Was the last call given up because the host's stream was not ready in time?
    pub(super) fn take_late(&mut self) -> bool {
        std::mem::take(&mut self.late)
    }

    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Answer<usize> {
        match &self.stdin {
            Input::Inherit => {
                let stdin = std::io::stdin();
                self.wait(stdin.as_fd(), PollFlags::POLLIN)?;
                // Not through a buffer: what the program does not read is left for others.
                loop {
                    match nix::unistd::read(&stdin, buffer) {
                        Err(nix::errno::Errno::EINTR) => {}
                        read => return Ok(read.map_err(io::Error::from)?),
                    }
                }
            }
            Input::Bytes(bytes) => {
                let rest = &bytes[self.read..];
                let count = rest.len().min(buffer.len());
                buffer[..count].copy_from_slice(&rest[..count]);
                self.read += count;
                Ok(count)
            }
        }
    }

    pub(super) fn write(&mut self, is_error: bool, bytes: &[u8]) -> Answer<usize> {
        let which = usize::from(is_error);
        match self.outputs[which] {
            Output::Inherit if is_error => self.write_through(io::stderr(), bytes),
            Output::Inherit => self.write_through(io::stdout(), bytes),
            Output::Capture => {
                let captured = &mut self.captured[which];
                if captured.len() + bytes.len() > self.captured_max {
                    return Err(Errno::ENOSPC);
                }
                captured.extend_from_slice(bytes);
                Ok(bytes.len())
            }
        }
    }

    fn write_through(&mut self, mut to: impl Write + AsFd, bytes: &[u8]) -> Answer<usize> {
        /// A pipe that is ready takes so much without waiting (POSIX `PIPE_BUF`).
        const PIECE: usize = 4096;
        for piece in bytes.chunks(PIECE) {
            self.wait(to.as_fd(), PollFlags::POLLOUT)?;
            to.write_all(piece)?;
            to.flush()?;
        }
        Ok(bytes.len())
    }

    /// Waits until a stream of the host is ready, as long as there is time.
    fn wait(&mut self, fd: BorrowedFd<'_>, events: PollFlags) -> Answer<()> {
        /// The longest that is waited at once, milliseconds.
        const SLICE: u16 = 1000;
        let Patience { deadline, stop } = self.patience;
        if deadline.is_none() && stop.is_none() {
            return Ok(());
        }
        loop {
            let left = deadline.map_or(Duration::MAX, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                self.late = true;
                return Err(Errno::EINTR);
            }
            let slice = u16::try_from(left.as_millis()).unwrap_or(SLICE).min(SLICE);
            match nix::poll::poll(&mut [PollFd::new(fd, events)], slice) {
                Ok(0) if left.is_zero() => {
                    self.late = true;
                    return Err(Errno::EINTR);
                }
                Ok(0) | Err(nix::errno::Errno::EINTR) => {}
                // What cannot be waited for is ready, or says what is wrong with it.
                _ => return Ok(()),
            }
        }
    }
}
