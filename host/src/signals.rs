//! Ending a recording by a signal to the recorder.

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);
/// The first signal that came; 0 if none did.
static RECEIVED: AtomicI32 = AtomicI32::new(0);

/// Signals that would end this process, from the outside or by a limit.
const SIGNALS: [Signal; 9] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGXCPU,
    Signal::SIGXFSZ,
];
/// Seconds between the alarms that follow a signal.
const AGAIN_SECONDS: u32 = 1;

extern "C" fn on_signal(signal: i32) {
    STOP.store(true, Ordering::Relaxed);
    let _ = RECEIVED.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed);
    // The signal may come between a look at the flag and a call that waits. The alarm ends that.
    nix::unistd::alarm::set(AGAIN_SECONDS);
}

/// From now on a signal that would end this process sets the flag that is returned, for
/// [`crate::Plan::stop`]. A process that is recorded has breakpoints in its code: a recorder
/// that just ended would leave it to die of one. Signals that are ignored stay ignored.
pub fn stop_on_signals() -> &'static AtomicBool {
    // Without SA_RESTART, so that waiting for the program ends.
    let ours = SigAction::new(
        SigHandler::Handler(on_signal),
        SaFlags::empty(),
        SigSet::empty(),
    );
    for signal in SIGNALS {
        // SAFETY: the handler only stores to atomics and calls alarm(), both async-signal-safe.
        let before = unsafe { sigaction(signal, &ours) };
        if let Ok(before) = before
            && matches!(before.handler(), SigHandler::SigIgn)
        {
            // SAFETY: this puts back what was there.
            let _ = unsafe { sigaction(signal, &before) };
        }
    }
    &STOP
}

/// Ends this process by the signal that asked for it, if one did, as it would have ended without
/// [`stop_on_signals`]: a shell then sees that it was interrupted.
pub fn end_by_signal() {
    let received = RECEIVED.load(Ordering::Relaxed);
    let Ok(signal) = Signal::try_from(received) else {
        return;
    };
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: this installs no handler.
    if unsafe { sigaction(signal, &default) }.is_ok() {
        let _ = raise(signal);
    }
}
