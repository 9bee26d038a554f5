//! Job control for a program that changes the terminal's mode: the signals set flags, so that the program
//! can restore the terminal before it stops, and take it again when it continues.

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use nix::unistd::Pid;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

static ASKED: AtomicBool = AtomicBool::new(false);
static CONTINUED: AtomicBool = AtomicBool::new(false);

/// How long a stop may take to reach this process, in pieces of [`PIECE`].
const PIECES_MAX: usize = 20;
const PIECE: Duration = Duration::from_millis(10);

/// What the signals of job control have said.
#[derive(Clone, Copy, Debug)]
pub struct JobControl {
    /// Becomes true when somebody asks this process to stop (SIGTSTP). Then [`suspend`] stops it.
    pub asked: &'static AtomicBool,
    /// Becomes true when this process was continued (SIGCONT).
    pub continued: &'static AtomicBool,
}

extern "C" fn on_signal(signal: i32) {
    let flag = match signal {
        nix::libc::SIGTSTP => &ASKED,
        _ => &CONTINUED,
    };
    flag.store(true, Ordering::Relaxed);
}

/// From now on SIGTSTP does not stop this process but sets a flag, and so does SIGCONT, which still
/// continues it. If SIGTSTP is ignored, as where there is no job control, it stays so.
pub fn watch_job_control() -> JobControl {
    // With SA_RESTART: what this process waits for goes on when it is continued.
    let ours = SigAction::new(
        SigHandler::Handler(on_signal),
        SaFlags::SA_RESTART,
        SigSet::empty(),
    );
    for signal in [Signal::SIGTSTP, Signal::SIGCONT] {
        // SAFETY: the handler only stores to atomics, which is async-signal-safe.
        let before = unsafe { sigaction(signal, &ours) };
        if let Ok(before) = before
            && matches!(before.handler(), SigHandler::SigIgn)
        {
            // SAFETY: this restores the previous action.
            let _ = unsafe { sigaction(signal, &before) };
        }
    }
    JobControl {
        asked: &ASKED,
        continued: &CONTINUED,
    }
}

/// Stops this process as the terminal does for Ctrl-Z, with the default action of SIGTSTP, until it is
/// continued. Returns at once where the signal is ignored, and after a moment where no shell could
/// continue this process: the kernel does not stop an orphaned process group (POSIX, 2.4.4).
pub fn suspend() {
    ASKED.store(false, Ordering::Relaxed);
    CONTINUED.store(false, Ordering::Relaxed);

    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: this installs no handler.
    let Ok(before) = (unsafe { sigaction(Signal::SIGTSTP, &default) }) else {
        return;
    };

    if matches!(before.handler(), SigHandler::SigIgn) {
        // SAFETY: this restores the previous action.
        let _ = unsafe { sigaction(Signal::SIGTSTP, &before) };
        return;
    }

    // The whole group, as for Ctrl-Z: a shell waits until all of it has stopped, also the program that
    // has started this one, such as cargo.
    let _ = kill(Pid::from_raw(0), Signal::SIGTSTP);

    // Another thread may take the signal, and this one would go on until it does.
    for _ in 0..PIECES_MAX {
        if CONTINUED.load(Ordering::Relaxed) {
            break;
        }
        std::thread::sleep(PIECE);
    }

    // SAFETY: this restores the previous action.
    let _ = unsafe { sigaction(Signal::SIGTSTP, &before) };
}
