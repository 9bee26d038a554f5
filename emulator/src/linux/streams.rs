//! Standard input, output and error: those of this process, or bytes in memory. The program sees
//! pipes in either case.

use super::errno::{Answer, Errno};
use nix::poll::{PollFd, PollFlags};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The source of standard input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// Standard input of this process.
    Inherit,
    /// These bytes.
    Bytes(Vec<u8>),
}

/// The destination of standard output or error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// The same stream of this process.
    Inherit,
    /// Memory: see [`super::Kernel::stdout`] and [`super::Kernel::stderr`].
    Capture,
}

/// Positions in the streams.
#[derive(Debug)]
pub(super) struct StreamsMark {
    read: usize,
    captured: [usize; 2],
}

/// The three standard streams.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    stdin: Input,
    /// Bytes of [`Input::Bytes`] that have been read.
    read: usize,
    outputs: [Output; 2],
    captured: [Vec<u8>; 2],
    captured_max: usize,
    patience: StreamTimeout,
    late: bool,
}

/// How long to wait for the streams of this process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StreamTimeout {
    pub(super) deadline: Option<Instant>,
    /// Ends the waiting when it becomes true.
    pub(super) stop: Option<&'static AtomicBool>,
}

impl Streams {
    pub(super) fn new(
        stdin: Input,
        outputs: [Output; 2],
        captured_max: usize,
        patience: StreamTimeout,
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

    /// The current positions.
    pub(super) fn mark(&self) -> StreamsMark {
        StreamsMark {
            read: self.read,
            captured: [0, 1].map(|which| self.captured[which].len()),
        }
    }

    /// Restores positions: what was captured since is dropped, what was read can be read again.
    /// Data read from or written to this process's streams is not restored.
    pub(super) fn restore(&mut self, mark: &StreamsMark) {
        self.read = mark.read;
        for (captured, len) in self.captured.iter_mut().zip(mark.captured) {
            captured.truncate(len);
        }
    }

    /// The captured output of standard output or error.
    pub(super) fn captured(&self, is_error: bool) -> &[u8] {
        &self.captured[usize::from(is_error)]
    }

    /// Returns bytes to the source; a terminal or a pipe of the host cannot take them back.
    pub(super) fn unread(&mut self, bytes: &[u8]) {
        self.read = self.read.saturating_sub(bytes.len());
    }

    /// The number of bytes that can be read at once; `None` if only the host knows.
    pub(super) fn available(&self) -> Option<u64> {
        match &self.stdin {
            Input::Inherit => None,
            Input::Bytes(bytes) => Some((bytes.len() - self.read) as u64),
        }
    }

    /// Whether the last call gave up because the host's stream was not ready in time.
    pub(super) fn take_late(&mut self) -> bool {
        std::mem::take(&mut self.late)
    }

    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Answer<usize> {
        match &self.stdin {
            Input::Inherit => {
                let stdin = std::io::stdin();
                self.wait(stdin.as_fd(), PollFlags::POLLIN)?;
                // Unbuffered, so that what the program does not read is left for others.
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
        /// A ready pipe takes this many bytes without blocking (POSIX `PIPE_BUF`).
        const PIECE: usize = 4096;
        for piece in bytes.chunks(PIECE) {
            self.wait(to.as_fd(), PollFlags::POLLOUT)?;
            to.write_all(piece)?;
            to.flush()?;
        }
        Ok(bytes.len())
    }

    /// Waits until a stream of the host is ready, or time is up.
    fn wait(&mut self, fd: BorrowedFd<'_>, events: PollFlags) -> Answer<()> {
        /// Longest single wait, milliseconds.
        const SLICE: u16 = 1000;
        let StreamTimeout { deadline, stop } = self.patience;
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

            // In slices, so that `stop` is noticed.
            let slice = u16::try_from(left.as_millis()).unwrap_or(SLICE).min(SLICE);
            match nix::poll::poll(&mut [PollFd::new(fd, events)], slice) {
                Ok(0) if left.is_zero() => {
                    self.late = true;
                    return Err(Errno::EINTR);
                }
                Ok(0) | Err(nix::errno::Errno::EINTR) => {}
                // A stream that cannot be polled is ready, or its error shows when it is used.
                _ => return Ok(()),
            }
        }
    }
}
