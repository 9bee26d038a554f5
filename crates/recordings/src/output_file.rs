//! An output file that gets its name only once it is complete.
//!
//! Until then it is `NAME.partial` in the same folder, and an existing file of that name is
//! unchanged. Symbolic links are followed; permissions and owner of the existing file are kept. A
//! target that is not a regular file (a device, a FIFO, `/dev/stdout`, which `-` names, too) is written
//! directly. A file that this process has read is not replaced, unless that is asked for. Nothing gets
//! its name if a file that was read has become shorter meanwhile.

use crate::printable::PrintableName as _;
use crate::{leftovers, mapped, open};
use nix::fcntl::OFlag;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What `-` names.
const STDOUT: &str = "/dev/stdout";
/// Maximum number of symbolic links followed, the same as Linux (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;
/// Bytes buffered before they are written.
const BUFFER_BYTES: usize = 1 << 18;

/// An output file being written.
///
/// [`finish`](OutputFile::finish) gives it its name. If it is dropped before that, it is removed,
/// unless [`keep_partial`](OutputFile::keep_partial) was called.
#[derive(Debug)]
pub struct OutputFile {
    out: BufWriter<File>,
    place: Place,
    /// The path as given by the caller, for messages.
    path: PathBuf,
    /// May it replace a file that was read?
    in_place: bool,
}

#[derive(Debug)]
enum Place {
    /// Written in place.
    Direct,
    /// Written to `partial`, which replaces `target` at the end.
    Beside {
        partial: PathBuf,
        target: PathBuf,
        /// Removes `partial` if a signal ends this process.
        _guard: leftovers::Guard,
    },
    /// Finished.
    Done,
}

impl OutputFile {
    /// Opens the output file for `path`.
    ///
    /// # Errors
    /// If `path` is a folder or a file that was read, its folder does not exist or is not writable, or
    /// another process is writing the same file.
    pub fn create(path: &Path) -> io::Result<OutputFile> {
        check_no_input(path)?;
        OutputFile::open(path, false)
    }

    /// [`create`](OutputFile::create) for a command that changes its input: `path` may have been read.
    ///
    /// # Errors
    /// As of [`create`](OutputFile::create).
    pub fn in_place(path: &Path) -> io::Result<OutputFile> {
        OutputFile::open(path, true)
    }

    fn open(path: &Path, in_place: bool) -> io::Result<OutputFile> {
        // As for other programs; a file of this name is `./-`.
        let path = if path == Path::new("-") {
            Path::new(STDOUT)
        } else {
            path
        };

        // A link stays: its target is replaced.
        let target = followed(path)?;
        let earlier = match fs::metadata(&target) {
            Ok(found) => Some(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };

        if earlier.as_ref().is_some_and(fs::Metadata::is_dir) {
            return Err(io::Error::new(
                io::ErrorKind::IsADirectory,
                "this is a folder; name a file",
            ));
        }

        // A device, a pipe or an open descriptor cannot be replaced.
        if earlier.as_ref().is_some_and(|e| !e.is_file()) || is_descriptor(&target) {
            // Append, as after a shell's `>>`.
            let file = OpenOptions::new().append(true).open(path)?;
            return Ok(OutputFile::new(file, Place::Direct, path, in_place));
        }

        let Some(name) = target.file_name() else {
            let what = "this is not a file name";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        };

        // Written beside the target and renamed at the end, so that nobody sees half a file.
        let mut partial = OsString::from(name);
        partial.push(".partial");
        let partial = target.with_file_name(partial);
        let (file, guard) = leftovers::file(&partial, create_partial)?;

        if let Some(earlier) = &earlier {
            let taken = take_over(&file, earlier);
            if let Err(error) = taken {
                // Nothing was written to it yet.
                let _ = fs::remove_file(&partial);
                return Err(error);
            }
        }

        Ok(OutputFile::new(
            file,
            Place::Beside {
                _guard: guard,
                partial,
                target,
            },
            path,
            in_place,
        ))
    }

    fn new(file: File, place: Place, path: &Path, in_place: bool) -> OutputFile {
        OutputFile {
            out: BufWriter::with_capacity(BUFFER_BYTES, file),
            place,
            path: path.into(),
            in_place,
        }
    }

    /// Adds the file name to an output error.
    fn named(&self, error: io::Error) -> io::Error {
        match error.kind() {
            // Unchanged, since `Write` callers retry on it.
            io::ErrorKind::Interrupted => error,
            kind => io::Error::new(kind, format!("{}: {error}", self.path.printable())),
        }
    }

    /// Writes what is buffered and gives the file its name.
    ///
    /// # Errors
    /// If writing fails, if what has this name now was read meanwhile, or if a file that was read has
    /// become shorter ([`mapped::check`]). The file can then still be kept as `NAME.partial`.
    pub fn finish(&mut self) -> io::Result<()> {
        self.flush()?;
        mapped::check().map_err(io::Error::other)?;
        if let Place::Beside {
            partial, target, ..
        } = &self.place
        {
            if !self.in_place {
                check_no_input(target)?;
            }
            fs::rename(partial, target).map_err(|e| self.named(e))?;
        }
        self.place = Place::Done;
        Ok(())
    }

    /// Stops early and keeps what was written as `NAME.partial`. Returns the path of that file;
    /// `None` if the output has none.
    pub fn keep_partial(&mut self) -> Option<PathBuf> {
        // The output has failed already: keep what could be written.
        let _ = self.out.flush();
        match std::mem::replace(&mut self.place, Place::Done) {
            Place::Beside { partial, .. } => Some(partial),
            Place::Direct | Place::Done => None,
        }
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes).map_err(|e| self.named(e))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush().map_err(|e| self.named(e))
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Place::Beside { partial, .. } = &self.place {
            // There is nobody to report a failure to.
            let _ = fs::remove_file(partial);
        }
    }
}

/// Writes a complete file at once.
///
/// # Errors
/// See [`OutputFile::create`] and [`OutputFile::finish`]; an existing file is then unchanged.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OutputFile::create(path)?;
    file.write_all(bytes)?;
    file.finish()
}

/// [`write()`] for a command that changes its input.
///
/// # Errors
/// See [`OutputFile::in_place`] and [`OutputFile::finish`]; an existing file is then unchanged.
pub fn rewrite(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OutputFile::in_place(path)?;
    file.write_all(bytes)?;
    file.finish()
}

/// Fails if `path` is a file that this process has read. Terminals and pipes may be both read and
/// written.
fn check_no_input(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() && open::is_input(&found) => {
            let what = "this file is an input of this command; name another file to write";
            Err(io::Error::new(io::ErrorKind::AlreadyExists, what))
        }
        _ => Ok(()),
    }
}

/// Resolves the symbolic links of `path`. The last one may be dangling.
fn followed(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        if is_descriptor(&path) {
            return Ok(path);
        }
        match fs::read_link(&path) {
            // A relative target is relative to the link's folder.
            Ok(to) => path = path.parent().unwrap_or(Path::new("")).join(to),
            Err(_) => return Ok(path),
        }
    }
    let what = "too many levels of symbolic links";
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

/// Is this the name of a process's open file, such as `/proc/self/fd/1`? The file behind it must
/// not be replaced.
fn is_descriptor(path: &Path) -> bool {
    let folder = path.parent().map(fs::canonicalize);
    folder.is_some_and(|f| f.is_ok_and(|f| f.starts_with("/proc") && f.ends_with("fd")))
}

/// Creates `partial` and locks it. A leftover of an earlier process is replaced.
fn create_partial(partial: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // A FIFO of that name must not wait for its reader.
    options.write(true).custom_flags(OFlag::O_NONBLOCK.bits());
    if let Ok(left) = options.open(partial)
        && matches!(left.try_lock(), Err(TryLockError::WouldBlock))
    {
        let what = "another process is writing this file";
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, what));
    }
    match fs::remove_file(partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // `create_new` does not follow a link that another process put here.
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(partial)?;
    // On file systems without locks, concurrent writers are not detected.
    let _ = file.try_lock();
    Ok(file)
}

/// Copies permissions and, where allowed, the owner of the file that `file` will replace.
fn take_over(file: &File, earlier: &fs::Metadata) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, fchown};
        // Only root may change the owner; ignore the failure otherwise.
        let _ = fchown(file, Some(earlier.uid()), Some(earlier.gid()));
    }
    file.set_permissions(earlier.permissions())
}

#[cfg(test)]
mod tests;
