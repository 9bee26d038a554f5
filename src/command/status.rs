//! The exit status.

use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(feature = "machine")]
use unwind_sim_emulator::linux::Notice;

/// The result of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    /// Something was judged, and all is as expected.
    AsExpected,
    /// A difference or contradiction was found.
    Difference,
    /// Not modelled, or nothing could be judged.
    NothingJudged,
    #[cfg(feature = "machine")]
    /// The status of the program that was run.
    Program(u8),
}

/// Whether a difference was found before everything was judged or printed.
static FOUND: AtomicBool = AtomicBool::new(false);

/// A command starts, which has found nothing.
pub(crate) fn begin() {
    FOUND.store(false, Ordering::Relaxed);
}

/// A difference was found, whatever follows.
pub(crate) fn found() {
    FOUND.store(true, Ordering::Relaxed);
}

/// The status of a command whose reader went away, which says nothing of what was not read.
pub(crate) fn unread() -> Status {
    if FOUND.load(Ordering::Relaxed) {
        Status::Difference
    } else {
        Status::AsExpected
    }
}

impl Status {
    /// This status, which is known before what was found is printed.
    pub(crate) fn known(self) -> Status {
        if self == Status::Difference {
            found();
        }
        self
    }
}

#[cfg(feature = "machine")]
impl Status {
    /// Adjusts the status of a run in the emulated machine. After a call that is not modelled, the
    /// program may behave differently than on Linux: a difference that was found still counts, but
    /// nothing else is as expected.
    pub(crate) fn of_machine(self, notices: &[Notice]) -> Status {
        match self {
            Status::Difference => Status::Difference,
            _ if !notices.is_empty() => Status::NothingJudged,
            status => status,
        }
    }
}

impl From<Status> for u8 {
    fn from(status: Status) -> u8 {
        match status {
            Status::AsExpected => 0,
            Status::Difference => 1,
            Status::NothingJudged => 3,
            #[cfg(feature = "machine")]
            Status::Program(code) => code,
        }
    }
}

/// The exit status for usage errors, I/O errors and malformed input.
pub(crate) const FAILED: u8 = 2;
