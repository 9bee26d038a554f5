//! A file that a command writes: it gets its name only when it is whole.
//!
//! Until then it lies beside its place as `NAME.partial`, and what had that name before stays as it
//! is. Links are followed, and permissions and owner of an earlier file are kept. What is not a
//! regular file (a device, a FIFO, `/dev/stdout`) is written into.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Links followed on the way to a file, as many as Linux follows (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;
/// Bytes collected before they are written.
const BUFFER_BYTES: usize = 1 << 18;

/// A file that is being written.
///
/// [`finish`](OutputFile::finish) gives it its name. Dropped before, it is removed, unless
/// [`keep_partial`](OutputFile::keep_partial) was called.
#[derive(Debug)]
pub struct OutputFile {
    out: BufWriter<File>,
    place: Place,
    /// As the caller calls it, for messages.
    path: PathBuf,
}

#[derive(Debug)]
enum Place {
    /// Written where it is.
    Direct,
    /// Written as `partial`, which takes the place of `target` at the end.
    Beside { partial: PathBuf, target: PathBuf },
    /// Nothing is left to do.
    Done,
}

impl OutputFile {
    /// Opens the output that is to be called `path`.
    ///
    /// # Errors
    /// If `path` is a folder, its folder does not exist or cannot be written to, or another
    /// process is writing the same file.
    pub fn create(path: &Path) -> io::Result<OutputFile> {
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
        if earlier.as_ref().is_some_and(|e| !e.is_file()) || is_descriptor(&target) {
            // Behind what a shell's `>>` keeps.
            let file = OpenOptions::new().append(true).open(path)?;
            return Ok(OutputFile::new(file, Place::Direct, path));
        }
        let Some(name) = target.file_name() else {
            let what = "this is not the name of a file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        };
        let mut partial = OsString::from(name);
        partial.push(".partial");
        let partial = target.with_file_name(partial);
        let file = create_partial(&partial)?;
        if let Some(earlier) = &earlier {
            let taken = take_over(&file, earlier);
            if let Err(error) = taken {
                let _ = fs::remove_file(&partial);
                return Err(error);
            }
        }
        Ok(OutputFile::new(
            file,
            Place::Beside { partial, target },
            path,
        ))
    }

    fn new(file: File, place: Place, path: &Path) -> OutputFile {
        OutputFile {
            out: BufWriter::with_capacity(BUFFER_BYTES, file),
            place,
            path: path.into(),
        }
    }

    /// An error of the output, with the file's name.
    fn named(&self, error: io::Error) -> io::Error {
        match error.kind() {
            // A writer tries again.
            io::ErrorKind::Interrupted => error,
            kind => io::Error::new(kind, format!("{}: {error}", self.path.display())),
        }
    }

    /// Writes what is left and gives the file its name.
    ///
    /// # Errors
    /// If the output fails. The file can still be kept as `NAME.partial`.
    pub fn finish(&mut self) -> io::Result<()> {
        self.flush()?;
        if let Place::Beside { partial, target } = &self.place {
            fs::rename(partial, target).map_err(|e| self.named(e))?;
        }
        self.place = Place::Done;
        Ok(())
    }

    /// Ends the output early and leaves what was written as `NAME.partial`, whose path this is;
    /// `None` if the output has no such file.
    pub fn keep_partial(&mut self) -> Option<PathBuf> {
        // It is the failed output that ends here: what could be written is there.
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
            // Nobody is left to hear that it could not be removed.
            let _ = fs::remove_file(partial);
        }
    }
}

/// Writes a whole file at once.
///
/// # Errors
/// As [`OutputFile::create`] and [`OutputFile::finish`]; the earlier file then stays as it was.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OutputFile::create(path)?;
    file.write_all(bytes)?;
    file.finish()
}

/// The file that `path` leads to, through links whose last may lead to nothing yet.
fn followed(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        if is_descriptor(&path) {
            return Ok(path);
        }
        match fs::read_link(&path) {
            // A relative target begins at the link's own folder.
            Ok(to) => path = path.parent().unwrap_or(Path::new("")).join(to),
            Err(_) => return Ok(path),
        }
    }
    let what = "too many links, each leading to the next";
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

/// Is this the name of an open file of some process, such as `/proc/self/fd/1`? Its own name, if it
/// has one, is not to be replaced.
fn is_descriptor(path: &Path) -> bool {
    let folder = path.parent().map(fs::canonicalize);
    folder.is_some_and(|f| f.is_ok_and(|f| f.starts_with("/proc") && f.ends_with("fd")))
}

/// Makes `partial`, which only this process writes. One that an earlier process left is replaced.
fn create_partial(partial: &Path) -> io::Result<File> {
    if let Ok(left) = OpenOptions::new().write(true).open(partial)
        && matches!(left.try_lock(), Err(TryLockError::WouldBlock))
    {
        let what = "another process is writing this file";
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, what));
    }
    match fs::remove_file(partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // A new file and nothing else: not through a link that somebody put here.
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(partial)?;
    // Where files cannot be locked, two processes are not told apart.
    let _ = file.try_lock();
    Ok(file)
}

/// Gives `file` the permissions and, where that is allowed, the owner of the one it is to replace.
fn take_over(file: &File, earlier: &fs::Metadata) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, fchown};
        // Only root may give files away; others keep what they make.
        let _ = fchown(file, Some(earlier.uid()), Some(earlier.gid()));
    }
    file.set_permissions(earlier.permissions())
}

#[cfg(test)]
mod tests;
