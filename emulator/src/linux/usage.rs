//! What processes have used. Not here: counting it (`count`).
//!
//! Source: Linux 6.12 `kernel/sys.c` (`getrusage`).

use super::clock::SECOND;

/// What a process has used, or several have.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Usage {
    /// Processor time, nanoseconds.
    pub(super) time: u64,
    /// The most memory of one process, KiB.
    pub(super) memory: u64,
}

impl Usage {
    pub(super) fn add(&mut self, other: Usage) {
        self.time += other.time;
        self.memory = self.memory.max(other.memory);
    }

    /// `struct rusage`.
    pub(super) fn words(&self) -> [u64; 18] {
        let mut words = [0; 18];
        words[0] = self.time / SECOND;
        words[1] = self.time % SECOND / 1000;
        words[4] = self.memory;
        words
    }
}
