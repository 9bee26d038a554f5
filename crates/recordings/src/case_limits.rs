//! How far the program of a case runs before it counts as one that does not end. Not here: running it.

use std::time::Duration;

/// The limits of one run of a case's program. Each is for what a program that ends stays far below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CaseLimits {
    /// Instructions, of all threads and processes.
    pub instructions_max: u64,
    /// Visits of sample points, each of which is recorded.
    pub samples_max: u64,
    /// Threads and processes at the same time.
    pub tasks_max: usize,
    /// Time, also while the program waits.
    pub timeout: Duration,
}

impl Default for CaseLimits {
    fn default() -> CaseLimits {
        CaseLimits {
            instructions_max: 20_000_000,
            samples_max: 100_000,
            tasks_max: 256,
            timeout: Duration::from_secs(60),
        }
    }
}
