//! Ending a recording from the keyboard.

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::sync::atomic::{AtomicBool, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn on_interrupt(_: i32) {
    STOP.store(true, Ordering::Relaxed);
}

/// From now on SIGINT and SIGTERM set the flag that is returned, for [`crate::Options::stop`],
/// instead of ending this process.
pub fn stop_on_interrupt() -> &'static AtomicBool {
    let handler = SigHandler::Handler(on_interrupt);
    // Without SA_RESTART, so that waiting for the program ends.
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
        let result = unsafe { sigaction(signal, &action) };
        debug_assert!(result.is_ok(), "SIGINT and SIGTERM can be handled");
    }
    &STOP
}
