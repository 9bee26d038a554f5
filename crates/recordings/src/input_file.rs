//! What a command reads, opened once: a file, a pipe, or a folder of perf.
//!
//! Whoever is given a path makes one [`InputFile`] of it and passes that on. It knows the path, which is
//! only for messages from then on, what kind of file it is, and its bytes. So a command reads from a pipe
//! whatever it reads from a file, and all its parts see the same bytes, whatever is put at the path
//! meanwhile.
//!
//! | named | opened | bytes |
//! |---|---|---|
//! | a file | once | mapped when they are first asked for ([`crate::mapped`]) |
//! | a pipe that this process was given: standard input, `<(COMMAND)` | once | read to their end when they are first asked for, at most [`PIPE_BYTES_MAX`] |
//! | a folder of `perf record --threads` | its files, once each | joined (`perf_directory.rs`) |
//! | a FIFO, a device, a socket, another folder | never: that may wait, or do something | none |
//!
//! The first bytes are read at once. They say the kind, so that nothing of an input that is refused is
//! kept in memory.
//!
//! Images that a recording names are not inputs; `files/` finds and opens them.

use crate::file_kind::{self, FileKind, HEAD_BYTES, KindError, WrongKind};
use crate::mapped::map_open_file;
use crate::open::{self, NotAFile, Opened};
use crate::perf_directory::PerfDirectory;
use std::borrow::Cow;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use unwind_sim_unwind::image::{Bytes, Owner};

/// The most bytes that are read from a pipe: they are kept in memory.
pub const PIPE_BYTES_MAX: u64 = 2 << 30;

/// An input that is open. Clones are the same input.
#[derive(Clone)]
pub struct InputFile(Arc<Inner>);

struct Inner {
    path: PathBuf,
    kind: FileKind,
    is_piped: bool,
    /// When the file was last written.
    modified: Option<SystemTime>,
    contents: Mutex<Contents>,
}

/// How far an input was read.
enum Contents {
    /// A file, of which only the first bytes were looked at.
    File(File, Metadata),
    /// A pipe, and the bytes that were taken from it.
    Pipe(File, Vec<u8>),
    /// A folder of perf.
    Folder(PerfDirectory),
    /// Not a file.
    Refused(NotAFile),
    /// All bytes.
    Held(Owner),
    /// It could not be read, and cannot be tried again.
    Failed(io::ErrorKind, String),
}

impl InputFile {
    /// Opens what is at `path`, and finds out what kind of file it is. What is not a file can be opened,
    /// too: its kind says what it is, and it has no bytes.
    ///
    /// # Errors
    /// If there is nothing at the path, or it cannot be opened or read.
    pub fn open(path: &Path) -> io::Result<InputFile> {
        InputFile::of(path, open::input(path)?)
    }

    fn of(path: &Path, opened: Opened) -> io::Result<InputFile> {
        let modified = match &opened {
            Opened::File(_, metadata) | Opened::Folder(_, metadata) => metadata.modified().ok(),
            _ => None,
        };

        let (kind, contents) = match opened {
            Opened::File(file, metadata) => {
                let head = head_of_file(&file)?;
                let kind = file_kind::of_file(path, &head);
                match metadata.len() {
                    // As in `/proc`: how long it is shows only when it is read.
                    0 if !head.is_empty() => (kind, Contents::Pipe(file, Vec::new())),
                    _ => (kind, Contents::File(file, metadata)),
                }
            }
            Opened::Pipe(mut pipe) => {
                let mut head = Vec::new();
                (&mut pipe).take(HEAD_BYTES).read_to_end(&mut head)?;
                // It has no name that could say what it is.
                (file_kind::of_pipe(&head), Contents::Pipe(pipe, head))
            }
            // `perf record --threads` writes a folder.
            Opened::Folder(refused, _) => match PerfDirectory::open(path) {
                Some(folder) => (FileKind::PerfData, Contents::Folder(folder)),
                None => (FileKind::Folder, Contents::Refused(refused)),
            },
            Opened::Special(refused) => (FileKind::Special, Contents::Refused(refused)),
        };

        // A file of `/proc` is read like a pipe, but has a time.
        let is_piped = matches!(contents, Contents::Pipe(..)) && modified.is_none();
        Ok(InputFile(Arc::new(Inner {
            path: path.into(),
            kind,
            is_piped,
            modified,
            contents: Mutex::new(contents),
        })))
    }

    /// Opens a file that another input names. A pipe is not one, whoever gave it to this process.
    ///
    /// # Errors
    /// If it cannot be opened or read, or with [`NotAFile`] inside.
    pub fn named_by_input(path: &Path) -> io::Result<InputFile> {
        let (file, metadata) = open::file(path)?;
        InputFile::of(path, Opened::File(file, metadata))
    }

    /// Opens what is at `path`, if it is of one of `kinds`, which `wanted` describes in words.
    ///
    /// # Errors
    /// If it cannot be opened or is of another kind.
    pub fn expect(
        path: &Path,
        wanted: &'static str,
        kinds: &[FileKind],
    ) -> Result<InputFile, KindError> {
        let file = InputFile::open(path).map_err(|source| KindError::Open {
            path: path.into(),
            source,
        })?;
        if kinds.contains(&file.kind()) {
            Ok(file)
        } else {
            Err(file.is_not(wanted).into())
        }
    }

    /// An input with these bytes, which need no opening. Its kind is that of a file with them at `path`.
    pub fn held(path: &Path, bytes: Owner) -> InputFile {
        let head = (*bytes).as_ref();
        let head = &head[..head.len().min(HEAD_BYTES as usize)];
        let kind = file_kind::of_file(path, head);
        InputFile(Arc::new(Inner {
            path: path.into(),
            kind,
            is_piped: false,
            modified: None,
            contents: Mutex::new(Contents::Held(bytes)),
        }))
    }

    /// The path by which it was named, for messages.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// What it is.
    pub fn kind(&self) -> FileKind {
        self.0.kind
    }

    /// Whether it came through a pipe, so that nothing can be read at its path again, and its path says
    /// nothing of it.
    pub fn is_piped(&self) -> bool {
        self.0.is_piped
    }

    /// When the file was last written; `None` of a pipe.
    pub fn modified(&self) -> Option<SystemTime> {
        self.0.modified
    }

    /// The error that it is not what was wanted.
    pub fn is_not(&self, wanted: impl Into<Cow<'static, str>>) -> WrongKind {
        WrongKind {
            path: self.path().into(),
            kind: self.kind(),
            wanted: wanted.into(),
        }
    }

    /// All its bytes. An empty file has none.
    ///
    /// # Errors
    /// If it cannot be mapped or read, is not a file, or is a pipe with more than [`PIPE_BYTES_MAX`]. The
    /// same error each time.
    pub fn bytes(&self) -> io::Result<Owner> {
        self.read(PIPE_BYTES_MAX)
    }

    /// [`InputFile::bytes`] with another limit for a pipe.
    fn read(&self, pipe_bytes_max: u64) -> io::Result<Owner> {
        let mut contents = (self.0.contents.lock()).unwrap_or_else(PoisonError::into_inner);
        let read = match &mut *contents {
            Contents::Held(owner) => return Ok(owner.clone()),
            Contents::Failed(kind, text) => return Err(io::Error::new(*kind, text.clone())),
            Contents::Refused(what) => return Err((*what).into()),
            Contents::File(file, metadata) => map_open_file(self.path(), file, metadata),
            Contents::Pipe(pipe, head) => read_pipe(pipe, std::mem::take(head), pipe_bytes_max),
            Contents::Folder(folder) => folder.map(self.path()),
        };

        // The descriptor is closed: a mapping needs none, and a pipe is at its end.
        *contents = match &read {
            Ok(owner) => Contents::Held(owner.clone()),
            Err(error) => Contents::Failed(error.kind(), error.to_string()),
        };
        read
    }

    /// All its bytes, as a part of them is held elsewhere.
    ///
    /// # Errors
    /// See [`InputFile::bytes`].
    pub fn whole(&self) -> io::Result<Bytes> {
        let owner = self.bytes()?;
        let len = (*owner).as_ref().len();
        Ok(Bytes::new(owner, 0..len).unwrap_or_else(|| Bytes::from_vec(Vec::new())))
    }

    /// All its bytes, which are at most `max`.
    ///
    /// # Errors
    /// See [`InputFile::bytes`]; also if it has more.
    pub fn bytes_within(&self, max: u64) -> io::Result<Owner> {
        let owner = self.read(max.min(PIPE_BYTES_MAX))?;
        open::within((*owner).as_ref(), max)?;
        Ok(owner)
    }

    /// Its text, of at most `max` bytes.
    ///
    /// # Errors
    /// See [`InputFile::bytes_within`]; also if it is not UTF-8.
    pub fn text(&self, max: u64) -> io::Result<String> {
        let owner = self.bytes_within(max)?;
        open::text((*owner).as_ref()).map(str::to_owned)
    }
}

impl fmt::Debug for InputFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputFile")
            .field("path", &self.path())
            .field("kind", &self.kind())
            .finish_non_exhaustive()
    }
}

/// The first bytes of a file; it stays where it is.
fn head_of_file(file: &File) -> io::Result<Vec<u8>> {
    let mut head = vec![0; HEAD_BYTES as usize];
    let mut filled = 0;
    while filled < head.len() {
        match file.read_at(&mut head[filled..], filled as u64) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    head.truncate(filled);
    Ok(head)
}

/// Reads what is left in a pipe, behind `head`.
fn read_pipe(pipe: &mut File, head: Vec<u8>, max: u64) -> io::Result<Owner> {
    let mut bytes = head;
    let left = (max + 1).saturating_sub(bytes.len() as u64);
    pipe.take(left).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        let what = format!(
            "it has more than {max} bytes, and what comes through a pipe is kept in memory; write it to a \
             file, and name that"
        );
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    bytes.shrink_to_fit();
    Ok(Arc::new(bytes))
}

#[cfg(test)]
mod tests;
