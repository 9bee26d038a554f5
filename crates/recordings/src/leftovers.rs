//! What must not stay when a signal ends this process: partial files, temporary folders, child
//! processes.
//!
//! A signal that a command handles itself, such as by ending a recording and writing it, is left to it.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, Once, PoisonError};
use tempfile::{NamedTempFile, TempDir};

const SIGNALS: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
/// How often a folder is removed in which another thread still creates files.
const ATTEMPTS: usize = 3;

static LEFTOVERS: Mutex<Vec<Option<Leftover>>> = Mutex::new(Vec::new());

#[derive(Clone, Debug)]
enum Leftover {
    File(PathBuf),
    Folder(PathBuf),
    /// All processes of a group.
    Group(Pid),
}

/// While it lives, a signal that ends this process takes the thing along. Dropping it does nothing
/// to the thing itself.
#[derive(Debug)]
pub struct Guard(usize);

/// A temporary folder. It goes when this is dropped.
#[derive(Debug)]
pub struct TemporaryFolder {
    folder: TempDir,
    _guard: Guard,
}

impl Drop for TemporaryFolder {
    /// Removes the folder, also if that fails once. The guard goes afterwards, so that a signal removes
    /// what is still there.
    fn drop(&mut self) {
        self.folder.disable_cleanup(true);
        Leftover::Folder(self.path().into()).remove();
    }
}

impl TemporaryFolder {
    /// Creates an empty one, whose name begins with `prefix`.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn new(prefix: &str) -> io::Result<TemporaryFolder> {
        let (folder, guard) = made(|| {
            let folder = tempfile::Builder::new().prefix(prefix).tempdir()?;
            let path = folder.path().into();
            Ok((folder, Leftover::Folder(path)))
        })?;
        Ok(TemporaryFolder {
            folder,
            _guard: guard,
        })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// A temporary file with a name. It goes when this is dropped.
#[derive(Debug)]
pub struct TemporaryFile {
    file: NamedTempFile,
    _guard: Guard,
}

impl TemporaryFile {
    /// Creates an empty one.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn new() -> io::Result<TemporaryFile> {
        let (file, guard) = made(|| {
            let file = NamedTempFile::new()?;
            let path = file.path().into();
            Ok((file, Leftover::File(path)))
        })?;
        Ok(TemporaryFile {
            file,
            _guard: guard,
        })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The open file.
    pub fn as_file(&self) -> &File {
        self.file.as_file()
    }

    /// The open file.
    pub fn as_file_mut(&mut self) -> &mut File {
        self.file.as_file_mut()
    }

    /// Opens it once more, at its start.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn reopen(&self) -> io::Result<File> {
        self.file.reopen()
    }
}

/// Creates the file at `path` with `create`.
///
/// # Errors
/// As of `create`.
pub fn file(
    path: &Path,
    create: impl FnOnce(&Path) -> io::Result<File>,
) -> io::Result<(File, Guard)> {
    made(|| Ok((create(path)?, Leftover::File(path.into()))))
}

/// Starts a process that leads a group of its own: what it starts ends with it.
///
/// # Errors
/// If it cannot be started.
pub fn group(command: &mut Command) -> io::Result<(Child, Guard)> {
    made(|| {
        let child = command.process_group(0).spawn()?;
        let leader = pid(child.id());
        Ok((child, Leftover::Group(leader)))
    })
}

/// Ends all processes of the group that the child process `leader` leads.
pub fn end_group(leader: u32) {
    Leftover::Group(pid(leader)).remove();
}

fn pid(leader: u32) -> Pid {
    Pid::from_raw(leader.cast_signed())
}

/// Makes a thing. A signal that comes meanwhile waits until it is made, and takes it along.
fn made<T>(make: impl FnOnce() -> io::Result<(T, Leftover)>) -> io::Result<(T, Guard)> {
    static WATCH: Once = Once::new();
    WATCH.call_once(watch);
    let mut all = LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner);
    let (thing, leftover) = make()?;
    let index = match all.iter().position(Option::is_none) {
        Some(free) => free,
        None => {
            all.push(None);
            all.len() - 1
        }
    };
    all[index] = Some(leftover);
    Ok((thing, Guard(index)))
}

impl Drop for Guard {
    fn drop(&mut self) {
        LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner)[self.0] = None;
    }
}

/// Starts the thread that waits for signals. Without it, everything is as without this module.
fn watch() {
    let wanted = SIGNALS.into_iter().filter(|signal| !is_taken(*signal));
    let Ok(mut signals) = Signals::new(wanted) else {
        return;
    };
    let wait = move || {
        for signal in signals.forever() {
            // Nothing new can be registered from here on.
            let all = LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner);
            all.iter().flatten().for_each(Leftover::remove);
            // Ends this process as the signal would have.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    };
    let _ = std::thread::Builder::new().spawn(wait);
}

/// Whether a signal does something else than to end this process: it was started to ignore the
/// signal, as by `nohup`, or a command has a handler. Where that cannot be told, it does not.
fn is_taken(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let masks = status.lines().filter_map(|line| {
        let mask = line
            .strip_prefix("SigIgn:")
            .or(line.strip_prefix("SigCgt:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    let taken = masks.fold(0, |all, mask| all | mask);
    taken >> (signal - 1) & 1 != 0
}

impl Leftover {
    /// Whoever ends the process cannot be told of a failure.
    fn remove(&self) {
        match self {
            Leftover::File(path) => {
                let _ = fs::remove_file(path);
            }
            Leftover::Folder(path) => {
                let mut removed = (0..ATTEMPTS).map(|_| fs::remove_dir_all(path));
                let _ = removed.any(|removed| removed.is_ok());
            }
            // 0 and 1 are not groups of a child.
            Leftover::Group(leader) if leader.as_raw() > 1 => {
                let _ = killpg(*leader, Signal::SIGKILL);
            }
            Leftover::Group(_) => {}
        }
    }
}
