//! Standard input, output and error of this process as files, while a command runs.

use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};

/// Files in the place of the three streams; dropping it puts the streams back.
pub(super) struct Capture {
    /// Standard input, output and error as they were.
    saved: [OwnedFd; 3],
    output: File,
    errors: File,
}

impl Capture {
    /// Puts `input` in the place of standard input, and empty files in that of the others.
    pub(super) fn new(input: &File) -> io::Result<Capture> {
        let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
        let saved = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
        let [input_fd, output_fd, errors_fd] = saved.map(|fd| fd.try_clone_to_owned());
        let capture = Capture {
            saved: [input_fd?, output_fd?, errors_fd?],
            output: tempfile::tempfile()?,
            errors: tempfile::tempfile()?,
        };
        io::stdout().flush()?;
        dup2_stdin(input)?;
        dup2_stdout(&capture.output)?;
        dup2_stderr(&capture.errors)?;
        Ok(capture)
    }

    /// Ends it, and returns the number of bytes of standard output and what standard error got.
    pub(super) fn end(self) -> io::Result<(u64, Vec<u8>)> {
        io::stdout().flush()?;
        let output = self.output.metadata()?.len();
        let mut errors = self.errors.try_clone()?;
        drop(self);
        let mut text = Vec::new();
        errors.rewind()?;
        errors.read_to_end(&mut text)?;
        Ok((output, text))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let [input, output, errors] = &self.saved;
        let _ = io::stdout().flush();
        // They were open before, so this fails only if the process has too many files.
        let _ = dup2_stdin(input);
        let _ = dup2_stdout(output);
        let _ = dup2_stderr(errors);
    }
}
