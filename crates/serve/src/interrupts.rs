//! Interrupts: a client asks to stop while a search runs. Another thread reads what it sends, and
//! stops the search through the flag that the states have.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Stops what runs, from another thread.
#[derive(Clone, Debug)]
pub struct Interrupter {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
}

impl Interrupter {
    /// Ends the search that runs, or else the next one. Returns the number of this interrupt, by
    /// which it can be taken back if nothing runs.
    pub fn interrupt(&self) -> u64 {
        let before = self.count.fetch_add(1, Ordering::SeqCst);
        self.stop.store(true, Ordering::SeqCst);
        before.wrapping_add(1)
    }
}

/// What has been asked for, as the thread that searches sees it.
#[derive(Debug)]
pub(crate) struct Interrupts {
    shared: Interrupter,
    /// The number of interrupts that were heeded.
    seen: u64,
}

impl Interrupts {
    /// `stop` is the flag of the states.
    pub(crate) fn new(stop: Arc<AtomicBool>) -> Interrupts {
        Interrupts {
            shared: Interrupter {
                stop,
                count: Arc::default(),
            },
            seen: 0,
        }
    }

    pub(crate) fn interrupter(&self) -> Interrupter {
        self.shared.clone()
    }

    /// Whether a search has to end.
    pub(crate) fn is_asked(&self) -> bool {
        self.shared.stop.load(Ordering::SeqCst)
    }

    /// All interrupts up to now are heeded.
    pub(crate) fn heed(&mut self) {
        self.heed_up_to(self.shared.count.load(Ordering::SeqCst));
    }

    /// The interrupts up to this number are heeded. A later one is kept: it may come at any moment.
    pub(crate) fn heed_up_to(&mut self, number: u64) {
        self.seen = self.seen.max(number);
        self.shared.stop.store(false, Ordering::SeqCst);
        if self.shared.count.load(Ordering::SeqCst) > self.seen {
            self.shared.stop.store(true, Ordering::SeqCst);
        }
    }
}
