//! Checks many files on several threads, and hands them over in the list's order.
//!
//! Each thread takes the next file. A large one is checked by as many threads as there are, and only
//! one large file is open at a time, so that memory depends on the largest file only.

use super::list::ListedFile;
use crate::tables::open::{OpenError, open};
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use unwind_sim_recordings::file_kind::KindError;
use unwind_sim_tables::check::{Options, Report, check};
use unwind_sim_tables::file::File;

/// The length from which a file is large, bytes.
const LARGE: u64 = 4 << 20;
/// The maximum number of files that are checked before one that is not yet handed over.
const AHEAD_MAX: usize = 64;
/// The maximum length of what waits to be handed over, beyond which no file is begun, bytes.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// A file that was checked.
pub enum SweepResult {
    /// Its report.
    Checked(Box<(File, Report)>),
    /// It could not be checked.
    Unreadable(Unreadable),
}

/// Why a file could not be checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreadable {
    /// The kind of fault.
    pub cause: Cause,
    /// What is wrong.
    pub error: String,
}

/// The kinds of fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// It cannot be opened or read.
    Io,
    /// It is not an ELF file.
    NotElf,
    /// It is damaged, or for another processor.
    Malformed,
    /// A bug of unwind-sim.
    Bug,
}

impl Cause {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Cause::Io => "io",
            Cause::NotElf => "not-elf",
            Cause::Malformed => "malformed",
            Cause::Bug => "bug",
        }
    }
}

impl From<OpenError> for Unreadable {
    fn from(error: OpenError) -> Unreadable {
        Unreadable {
            cause: match &error {
                OpenError::Kind(KindError::Wrong(_)) => Cause::NotElf,
                OpenError::Kind(KindError::Open { .. }) | OpenError::Read { .. } => Cause::Io,
                OpenError::File(_) => Cause::Malformed,
            },
            error: error.to_string(),
        }
    }
}

/// What was made of a file.
pub trait SweepOutput: Send {
    /// Makes it of a file's outcome.
    fn new(entry: &ListedFile, swept: &SweepResult) -> Self;
    /// Its length, bytes, more or less.
    fn bytes(&self) -> usize;
}

/// What the threads share.
struct WorkQueue<P> {
    state: Mutex<State<P>>,
    changed: Condvar,
    /// Held while a large file is open.
    large: Mutex<()>,
}

struct State<P> {
    /// The number of files that were taken.
    taken: usize,
    /// The number of files that were handed over.
    handed: usize,
    done: BTreeMap<usize, P>,
    waiting_bytes: usize,
    stopped: bool,
}

/// Stops everything if its thread panics.
struct StopOnPanic<'a, P>(&'a WorkQueue<P>);

impl<P> WorkQueue<P> {
    fn state(&self) -> MutexGuard<'_, State<P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<P>>) -> MutexGuard<'a, State<P>> {
        let state = self.changed.wait(state);
        state.unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        self.state().stopped = true;
        self.changed.notify_all();
    }

    /// The number of the next file to check; `None` if there is none.
    fn take(&self, count: usize) -> Option<usize> {
        let mut state = self.state();
        loop {
            let ahead = state.taken - state.handed;
            let is_full = ahead >= AHEAD_MAX || state.waiting_bytes >= WAITING_BYTES_MAX;
            if state.stopped || state.taken >= count {
                return None;
            }
            // The file that all others wait for is always begun.
            if !is_full || ahead == 0 {
                state.taken += 1;
                return Some(state.taken - 1);
            }
            state = self.wait(state);
        }
    }
}

impl<P> Drop for StopOnPanic<'_, P> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}

/// Checks `files` and calls `write` with what was made of each, in order. Stops at the first error
/// of `write`.
///
/// # Errors
/// Those of `write`.
pub fn run<P: SweepOutput, E>(
    files: &[&ListedFile],
    options: &Options,
    mut write: impl FnMut(P) -> Result<(), E>,
) -> Result<(), E> {
    let shared = WorkQueue {
        state: Mutex::new(State {
            taken: 0,
            handed: 0,
            done: BTreeMap::new(),
            waiting_bytes: 0,
            stopped: false,
        }),
        changed: Condvar::new(),
        large: Mutex::new(()),
    };

    let work = || {
        // Without this, a panic in one worker would let all others wait for ever.
        let stop = StopOnPanic(&shared);
        while let Some(number) = shared.take(files.len()) {
            let piece: P = piece(files[number], options, &shared.large);
            // `take` waits while the results that cannot be handed out yet are too large.
            let mut state = shared.state();
            state.waiting_bytes += piece.bytes();
            state.done.insert(number, piece);
            drop(state);
            shared.changed.notify_all();
        }
        drop(stop);
    };

    std::thread::scope(|scope| {
        // Never more threads than files, and at least one.
        let threads = options.threads.clamp(1, files.len().max(1));
        scope.spawn(work);
        for _ in 1..threads {
            // Where no more threads can be had, fewer do the same.
            if Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }

        // In the order of the list, so that the output does not depend on the threads.
        for number in 0..files.len() {
            let mut state = shared.state();
            let piece = loop {
                if let Some(piece) = state.done.remove(&number) {
                    break piece;
                }

                // A worker that stopped will not deliver this number.
                if state.stopped {
                    // The panic goes on where the threads are joined.
                    return Ok(());
                }
                state = shared.wait(state);
            };

            state.waiting_bytes -= piece.bytes();
            state.handed += 1;
            drop(state);
            shared.changed.notify_all();

            // Without a writer, the workers must not go on.
            if let Err(error) = write(piece) {
                shared.stop();
                return Err(error);
            }
        }
        Ok(())
    })
}

/// Checks one file. A bug of ours costs this file, not the sweep.
fn piece<P: SweepOutput>(entry: &ListedFile, options: &Options, large: &Mutex<()>) -> P {
    let path = entry.path();
    let is_large = std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() >= LARGE);
    let _large = is_large.then(|| large.lock().unwrap_or_else(PoisonError::into_inner));
    let threads = if is_large { options.threads } else { 1 };
    let options = Options {
        threads,
        ..*options
    };
    let made = catch_unwind(AssertUnwindSafe(|| P::new(entry, &sweep(path, &options))));
    made.unwrap_or_else(|panic| {
        let unreadable = Unreadable {
            cause: Cause::Bug,
            error: format!("a bug in unwind-sim: {}", message(&*panic)),
        };
        P::new(entry, &SweepResult::Unreadable(unreadable))
    })
}

fn sweep(path: &Path, options: &Options) -> SweepResult {
    match open(path) {
        Ok(file) => {
            let report = check(&file, options);
            SweepResult::Checked(Box::new((file, report)))
        }
        Err(error) => SweepResult::Unreadable(error.into()),
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message")
}

#[cfg(test)]
mod tests;
