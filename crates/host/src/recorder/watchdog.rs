//! Ends a program whose recording takes too long, while the recorder waits for that program.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Kills a process after some time, unless it is dropped before.
pub(super) struct Watchdog {
    is_over: Arc<AtomicBool>,
    /// Closing it ends the thread.
    alive: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Kills `pid`, a child of this process, in `timeout`.
    pub(super) fn start(pid: i32, timeout: Duration) -> std::io::Result<Watchdog> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (alive, ended) = channel::<()>();
        let over = Arc::clone(&is_over);
        let watch = move || {
            if ended.recv_timeout(timeout) == Err(RecvTimeoutError::Timeout) {
                over.store(true, Ordering::Relaxed);
                // The recorder waits in `waitpid`, which the end of the program ends. The number is
                // still the program's: this is dropped when the recorder has seen it end.
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        };
        let thread = std::thread::Builder::new().spawn(watch)?;
        Ok(Watchdog {
            is_over,
            alive: Some(alive),
            thread: Some(thread),
        })
    }

    /// Whether the time is over.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
