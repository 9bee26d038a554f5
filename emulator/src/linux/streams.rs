//! Standard input, output and error: those of this process, or bytes in memory. The program
//! sees pipes, whatever they are.

use super::errno::{Answer, Errno};
use std::io::{Read, Write};

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
}

impl Streams {
    pub(super) fn new(stdin: Input, outputs: [Output; 2], captured_max: usize) -> Streams {
        Streams {
            stdin,
            read: 0,
            outputs,
            captured: [Vec::new(), Vec::new()],
            captured_max,
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

    /// Bytes that can be read at once, if that is known.
    pub(super) fn available(&self) -> Option<usize> {
        match &self.stdin {
            Input::Inherit => None,
            Input::Bytes(bytes) => Some(bytes.len() - self.read),
        }
    }

    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Answer<usize> {
        match &self.stdin {
            Input::Inherit => Ok(std::io::stdin().lock().read(buffer)?),
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
            Output::Inherit if is_error => write_through(&mut std::io::stderr().lock(), bytes),
            Output::Inherit => write_through(&mut std::io::stdout().lock(), bytes),
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
}

fn write_through(to: &mut impl Write, bytes: &[u8]) -> Answer<usize> {
    to.write_all(bytes)?;
    to.flush()?;
    Ok(bytes.len())
}
