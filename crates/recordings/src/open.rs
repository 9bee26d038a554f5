//! Opens what a recording or a person names. Only files are read: opening anything else may wait for
//! ever (a FIFO), do something (a device), or never end (`/dev/zero`).

use nix::fcntl::OFlag;
use std::collections::HashMap;
use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// Whether inputs are remembered.
static REMEMBERS: AtomicBool = AtomicBool::new(false);
/// Every file that this process opened here since then, and how often.
static INPUTS: Mutex<Option<HashMap<Identity, u32>>> = Mutex::new(None);

/// From now on, no file that this process opens here is overwritten by
/// [`OutputFile::create`](crate::output_file::OutputFile::create): for a program that runs one command
/// after the other. What an earlier command opened is forgotten.
pub fn remember_inputs() {
    *INPUTS.lock().unwrap_or_else(PoisonError::into_inner) = None;
    REMEMBERS.store(true, Ordering::Relaxed);
}

/// Device, inode, and when the file was made, where that is known: an inode is given again to another
/// file after one is removed.
type Identity = (u64, u64, Option<SystemTime>);

fn identity(file: &Metadata) -> Identity {
    (file.dev(), file.ino(), file.created().ok())
}

/// Is this a file that was opened here, as far as that is remembered? Writing it would destroy an input.
pub(crate) fn is_input(file: &Metadata) -> bool {
    let inputs = INPUTS.lock().unwrap_or_else(PoisonError::into_inner);
    let inputs = inputs.as_ref();
    inputs.is_some_and(|inputs| inputs.contains_key(&identity(file)))
}

/// Something that has a path, but is not a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this is {0}, not a file")]
pub struct NotAFile(&'static str);

impl NotAFile {
    fn new(kind: FileType) -> NotAFile {
        let is = [
            (kind.is_dir(), "a folder"),
            (kind.is_fifo(), "a FIFO"),
            (kind.is_socket(), "a socket"),
            (kind.is_char_device() || kind.is_block_device(), "a device"),
        ];
        let found = is.into_iter().find(|(is, _)| *is);
        NotAFile(found.map_or("of an unknown kind", |(_, name)| name))
    }

    /// Why `error` says that something is not a file, if it does.
    pub fn of(error: &io::Error) -> Option<NotAFile> {
        error.get_ref()?.downcast_ref().copied()
    }
}

impl From<NotAFile> for io::Error {
    fn from(what: NotAFile) -> io::Error {
        let kind = match what.0 {
            "a folder" => io::ErrorKind::IsADirectory,
            _ => io::ErrorKind::InvalidInput,
        };
        io::Error::new(kind, what)
    }
}

/// Opens a file for reading, without waiting.
///
/// # Errors
/// If it cannot be opened, or with [`NotAFile`] inside.
pub fn file(path: &Path) -> io::Result<(File, Metadata)> {
    // Asked first, since opening a device may do something.
    is_file(&fs::metadata(path)?)?;
    // In the meantime it may have become another thing.
    let harmless = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(harmless.bits())
        .open(path)?;
    let metadata = file.metadata()?;
    is_file(&metadata)?;
    count(&metadata);
    Ok((file, metadata))
}

/// Remembers that an input was opened, and how often.
fn count(opened: &Metadata) {
    note(opened, 1);
}

/// Remembers an input that was open already.
fn remember(open: &Metadata) {
    note(open, 0);
}

fn note(file: &Metadata, opens: u32) {
    if REMEMBERS.load(Ordering::Relaxed) {
        let mut inputs = INPUTS.lock().unwrap_or_else(PoisonError::into_inner);
        let inputs = inputs.get_or_insert_default();
        *inputs.entry(identity(file)).or_default() += opens;
    }
}

/// How often the file at `path` was opened here since [`remember_inputs`], for tests: each input is to be
/// opened once.
///
/// # Errors
/// If there is no such file.
pub fn times_opened(path: &Path) -> io::Result<u32> {
    let file = fs::metadata(path)?;
    let inputs = INPUTS.lock().unwrap_or_else(PoisonError::into_inner);
    let times = inputs.as_ref().and_then(|all| all.get(&identity(&file)));
    Ok(times.copied().unwrap_or(0))
}

fn is_file(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_file() {
        Ok(())
    } else {
        Err(NotAFile::new(metadata.file_type()).into())
    }
}

/// What is at a path that a person named.
pub(crate) enum Opened {
    /// A file, open for reading.
    File(File, Metadata),
    /// A pipe that this process was given, or the rest of a file of which somebody has read a part.
    Pipe(File),
    /// A folder.
    Folder(NotAFile, Metadata),
    /// A FIFO, a device or a socket, which is not opened.
    Special(NotAFile),
}

/// Opens what a person named: a file, a folder, or a pipe that a shell gave this process (`<(COMMAND)`,
/// `/dev/stdin`), which is waited for.
///
/// # Errors
/// If there is nothing, or it cannot be opened.
pub(crate) fn input(path: &Path) -> io::Result<Opened> {
    if is_standard_input(path) {
        return standard_input();
    }

    let metadata = fs::metadata(path)?;
    if metadata.is_dir() {
        return Ok(Opened::Folder(
            NotAFile::new(metadata.file_type()),
            metadata,
        ));
    }
    if metadata.file_type().is_fifo() && is_of_this_process(path) {
        count(&metadata);
        return File::open(path).map(Opened::Pipe);
    }
    match file(path) {
        Ok((file, metadata)) => Ok(Opened::File(file, metadata)),
        Err(error) => match NotAFile::of(&error) {
            Some(what) => Ok(Opened::Special(what)),
            None => Err(error),
        },
    }
}

/// Standard input, which is open: it is not opened again, which another user's file would not allow.
fn standard_input() -> io::Result<Opened> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let mut input = File::from(input);
    let metadata = input.metadata()?;
    if metadata.is_dir() {
        return Ok(Opened::Folder(
            NotAFile::new(metadata.file_type()),
            metadata,
        ));
    }
    if !metadata.is_file() {
        return Ok(Opened::Pipe(input));
    }

    remember(&metadata);
    match input.stream_position()? {
        0 => Ok(Opened::File(input, metadata)),
        // Somebody has read a part: what is left is the input, as of a pipe.
        _ => Ok(Opened::Pipe(input)),
    }
}

/// Opens a file that is read once, from its start to its end: also a pipe that a shell gave this
/// process (`<(COMMAND)`, `/dev/stdin`), which is waited for.
///
/// # Errors
/// As of [`file()`].
pub fn stream(path: &Path) -> io::Result<File> {
    match input(path)? {
        Opened::File(file, _) | Opened::Pipe(file) => Ok(file),
        Opened::Folder(what, _) | Opened::Special(what) => Err(what.into()),
    }
}

/// Is this a pipe that this process was given, which can be read only once?
pub fn is_piped(path: &Path) -> bool {
    let is_fifo = |path| fs::metadata(path).is_ok_and(|data| data.file_type().is_fifo());
    (is_standard_input(path) || is_of_this_process(path)) && is_fifo(path)
}

/// Is this the name of standard input?
fn is_standard_input(path: &Path) -> bool {
    const NAMES: [&str; 3] = ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];
    NAMES.iter().any(|name| path == Path::new(name))
}

/// Is this the name of an open file of this process?
fn is_of_this_process(path: &Path) -> bool {
    path.starts_with("/dev/fd") || path.starts_with("/proc/self/fd")
}

/// Reads such a [`stream`] of at most `max` bytes.
///
/// # Errors
/// As of [`file()`], and if there are more bytes.
pub fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream(path)?.take(max + 1).read_to_end(&mut bytes)?;
    within(&bytes, max)?;
    Ok(bytes)
}

/// [`read`] of a text.
///
/// # Errors
/// As of [`read`], and if it is not UTF-8.
pub fn read_text(path: &Path, max: u64) -> io::Result<String> {
    let bytes = read(path, max)?;
    text(&bytes).map(str::to_owned)
}

/// Bytes as a text.
pub(crate) fn text(bytes: &[u8]) -> io::Result<&str> {
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "not a text in UTF-8");
    std::str::from_utf8(bytes).map_err(not_text)
}

/// Fails if there are more than `max` bytes.
pub(crate) fn within(bytes: &[u8], max: u64) -> io::Result<()> {
    if bytes.len() as u64 > max {
        let what = format!("larger than {max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use std::os::unix::net::UnixListener;

    #[test]
    fn what_is_not_a_file_is_named_and_never_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let [fifo, socket, empty] =
            ["fifo", "socket", "empty"].map(|name| folder.path().join(name));
        mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        fs::write(&empty, "").unwrap();
        let said = |path: &Path| file(path).map(drop).unwrap_err().to_string();
        assert_eq!(said(&fifo), "this is a FIFO, not a file");
        assert_eq!(said(&socket), "this is a socket, not a file");
        assert_eq!(said(folder.path()), "this is a folder, not a file");
        assert_eq!(said(Path::new("/dev/zero")), "this is a device, not a file");
        assert!(read(&fifo, 1).is_err() && read(Path::new("/dev/zero"), 1).is_err());
        let circle = folder.path().join("circle");
        std::os::unix::fs::symlink("circle", &circle).unwrap();
        assert_eq!(NotAFile::of(&file(&circle).map(drop).unwrap_err()), None);
        assert_eq!(read(&empty, 0).unwrap(), b"");
    }

    #[test]
    fn a_stream_is_read_up_to_its_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        fs::write(&path, "four").unwrap();
        assert_eq!(read_text(&path, 4).unwrap(), "four");
        let error = read(&path, 3).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        fs::write(&path, b"\xff").unwrap();
        assert_eq!(
            read_text(&path, 4).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_pipe_of_this_process_is_a_stream() {
        use std::io::Write;
        use std::os::fd::AsRawFd;
        let (reader, mut writer) = io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
        writer.write_all(b"through a pipe").unwrap();
        drop(writer);
        assert_eq!(read_text(Path::new(&path), 100).unwrap(), "through a pipe");
        assert!(file(Path::new(&path)).is_err());
    }
}
