//! Lets a signal to the recorder end the recording.

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);
/// The first signal received; 0 if none.
static RECEIVED: AtomicI32 = AtomicI32::new(0);

/// Signals that would end this process, sent by others or because of a limit.
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
/// Seconds between the alarms that follow the first signal.
const AGAIN_SECONDS: u32 = 1;

extern "C" fn on_signal(signal: i32) {
    STOP.store(true, Ordering::Relaxed);
    let _ = RECEIVED.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed);
    // The signal may arrive between a check of the flag and a blocking call; the alarm ends that
    // call.
    nix::unistd::alarm::set(AGAIN_SECONDS);
}

/// Installs handlers so that a signal that would end this process sets the returned flag instead,
/// for [`crate::Plan::stop`]. A recorded process has breakpoints in its code and would die of one
/// if the recorder just ended. Ignored signals stay ignored.
pub fn stop_on_signals() -> &'static AtomicBool {
    // Without SA_RESTART, so that the signal interrupts waiting for the program.
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
            // SAFETY: this restores the previous action.
            let _ = unsafe { sigaction(signal, &before) };
        }
    }
    &STOP
}

/// Ends this process by the signal received, if any, as it would have ended without
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
