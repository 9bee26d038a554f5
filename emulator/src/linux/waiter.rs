//! A thread that waits for a futex. Not here: waiting and waking (`calls::futex`).

use crate::address_space::MemoryKey;

/// A thread that waits for a futex.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) process: u32,
    /// What is at the address of the word, for all who share it.
    pub(super) place: MemoryKey,
    pub(super) bits: u32,
    pub(super) thread: u32,
    /// The place of the futex in the list of `futex_waitv`.
    pub(super) index: u32,
}

impl Waiter {
    pub(super) fn is(&self, process: u32, thread: u32) -> bool {
        (self.process, self.thread) == (process, thread)
    }

    pub(super) fn is_of(&self, process: u32) -> bool {
        self.process == process
    }
}
