//! The name of a thread. Not here: what the kernel knows of it (`threads`).

use super::PID;

/// Names a thread of the machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Task {
    /// The number of its process.
    pub process: u32,
    /// Its own number; that of a process's first thread is the process's.
    pub thread: u32,
}

impl Task {
    /// The thread with which a run begins.
    pub const FIRST: Task = Task {
        process: PID,
        thread: PID,
    };
}
