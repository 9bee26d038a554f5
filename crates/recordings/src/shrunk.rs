//! Files that are cut while they are mapped. Reading what is gone raises `SIGBUS`; then zeros are put
//! there, and the file is remembered, so that no result is given for it.

use crate::printable::PrintableName as _;
use nix::libc::{self, c_int, c_void, siginfo_t};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Maximum number of files that are watched at a time. One more is mapped, but not watched.
const WATCHED_MAX: usize = 8192;
/// Nothing smaller can be missing.
const PAGE: usize = 4096;

/// A mapped range. The handler reads it, so it has no lock; `end` is 0 if the place is free.
struct Place {
    start: AtomicUsize,
    end: AtomicUsize,
    /// The first missing address; 0 while nothing is missing.
    missing: AtomicUsize,
}

static PLACES: [Place; WATCHED_MAX] = [const {
    Place {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        missing: AtomicUsize::new(0),
    }
}; WATCHED_MAX];
/// No place from here on was ever used.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Is anything missing anywhere?
static ANY: AtomicBool = AtomicBool::new(false);
static FILES: Mutex<Files> = Mutex::new(Files {
    paths: Vec::new(),
    free: Vec::new(),
    cut: None,
});
/// What `SIGBUS` did before.
static BEFORE: OnceLock<SigAction> = OnceLock::new();

struct Files {
    /// By place.
    paths: Vec<PathBuf>,
    free: Vec<usize>,
    /// The first file that was found cut, when it was no longer mapped.
    cut: Option<Shrunk>,
}

/// A file became shorter while it was read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{path}: it had {expected} bytes when it was opened, and {found} while it was read; another \
     process cut it. Run this again when the file is complete",
    path = path.printable()
)]
pub struct Shrunk {
    /// The file.
    pub path: PathBuf,
    /// Its size when it was opened, bytes.
    pub expected: u64,
    /// Its size now, bytes; if that is not known, at most so many could be read.
    pub found: u64,
}

/// Forgets what was found of files that are no longer mapped, before another command in this process.
pub fn forget() {
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    files.cut = None;
    if files.paths.len() == files.free.len() {
        ANY.store(false, Ordering::Release);
    }
}

/// Fails if a file that was mapped has become shorter while it was read: whatever was made of it is
/// then worth nothing.
///
/// # Errors
/// The first such file.
pub fn check() -> Result<(), Shrunk> {
    if !ANY.load(Ordering::Acquire) {
        return Ok(());
    }
    let files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let places = 0..files.paths.len();
    let found = places.filter_map(|index| files.cut_at(index)).next();
    files.cut.clone().or(found).map_or(Ok(()), Err)
}

impl Files {
    /// The file at a place, if it was cut.
    fn cut_at(&self, index: usize) -> Option<Shrunk> {
        let Place {
            start,
            end,
            missing,
        } = &PLACES[index];
        let [start, end, missing] = [start, end, missing].map(|at| at.load(Ordering::Acquire));
        let path = self.paths[index].clone();
        // A free place ends at 0.
        let expected = end.checked_sub(start)? as u64;
        let readable = missing.checked_sub(start)? as u64;
        let now = std::fs::metadata(&path).map(|now| now.len()).ok();
        Some(Shrunk {
            found: now.filter(|&now| now < expected).unwrap_or(readable),
            path,
            expected,
        })
    }
}

/// Watches a range until it is dropped.
pub(crate) struct Watch(Option<usize>);

/// Watches the range of a mapped file.
pub(crate) fn watch(path: &Path, start: usize, len: usize) -> Watch {
    if BEFORE.get().is_none() && !install() {
        return Watch(None);
    }
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let index = match files.free.pop() {
        Some(index) => {
            files.paths[index] = path.into();
            index
        }
        None if files.paths.len() < WATCHED_MAX => {
            files.paths.push(path.into());
            files.paths.len() - 1
        }
        None => return Watch(None),
    };
    let place = &PLACES[index];
    place.missing.store(0, Ordering::Relaxed);
    place.start.store(start, Ordering::Relaxed);
    place.end.store(start + len, Ordering::Release);
    USED.fetch_max(index + 1, Ordering::Release);
    Watch(Some(index))
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Some(index) = self.0 else { return };
        let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        let cut = files.cut_at(index);
        files.cut = files.cut.take().or(cut);
        PLACES[index].end.store(0, Ordering::Release);
        files.free.push(index);
    }
}

/// Installs the handler, once. Whether it is there.
fn install() -> bool {
    let files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    if BEFORE.get().is_some() {
        return true;
    }
    // On the thread's alternate stack, if it has one, as the standard library's handlers.
    let flags = SaFlags::SA_SIGINFO | SaFlags::SA_ONSTACK;
    let ours = SigAction::new(SigHandler::SigAction(on_sigbus), flags, SigSet::empty());
    // SAFETY: the handler reads and writes atomics, and calls mmap and sigaction, which are system
    // calls; what was there before is called as the kernel would have called it.
    let before = unsafe { sigaction(Signal::SIGBUS, &ours) };
    let is_there = before.is_ok_and(|before| {
        // Nobody else sets it while the lock is held.
        BEFORE.get_or_init(|| before);
        true
    });
    drop(files);
    is_there
}

extern "C" fn on_sigbus(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives the handler a valid one.
    let address = unsafe { (*info).si_addr() }.addr();
    if fill(address) {
        return;
    }
    match BEFORE.get().map(SigAction::handler) {
        Some(SigHandler::SigAction(before)) => before(signal, info, context),
        Some(SigHandler::Handler(before)) => before(signal),
        // The access is repeated, and ends this process.
        _ => {
            let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
            // SAFETY: this installs no handler.
            let _ = unsafe { sigaction(Signal::SIGBUS, &default) };
        }
    }
}

/// Puts zeros from the page of a missing address up to the end of the mapping that it is in. Whether
/// there is such a mapping.
fn fill(address: usize) -> bool {
    let used = USED.load(Ordering::Acquire).min(WATCHED_MAX);
    let found = PLACES[..used].iter().find(|place| {
        let end = place.end.load(Ordering::Acquire);
        (place.start.load(Ordering::Relaxed)..end).contains(&address)
    });

    let Some(place) = found else {
        return false;
    };

    let from = address & !(PAGE - 1);
    let length = place.end.load(Ordering::Relaxed) - from;
    // MAP_FIXED puts the zeros in the place of what is there.
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let at = std::ptr::with_exposed_provenance_mut(from);

    // SAFETY: the range is part of a mapping that its owner keeps, since it is being read, and that is
    // only read. It stays mapped, now with zeros, and the owner unmaps it as before.
    let mapped = unsafe { libc::mmap(at, length, libc::PROT_READ, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return false;
    }

    let missing = &place.missing;
    let _ = missing.fetch_update(Ordering::AcqRel, Ordering::Acquire, |seen| {
        (seen == 0 || from < seen).then_some(from)
    });
    ANY.store(true, Ordering::Release);
    true
}
