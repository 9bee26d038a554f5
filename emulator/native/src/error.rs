//! Errors of a traced process, and of one that is stepped.

use std::io;

/// A system call on a traced process failed.
#[derive(Debug, thiserror::Error)]
#[error("{call} of thread {tid} failed: {error}")]
pub struct TraceError {
    /// The name of the call.
    pub call: &'static str,
    /// The thread.
    pub tid: i32,
    /// The call's error.
    pub error: io::Error,
}

impl TraceError {
    /// The error of the last system call.
    pub fn last(call: &'static str, tid: i32) -> TraceError {
        TraceError {
            call,
            tid,
            error: io::Error::last_os_error(),
        }
    }
}

/// Why a process could not be stepped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// It could not be controlled.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// It stopped for an unexpected reason.
    #[error("the stepped process {pid} stopped unexpectedly: {what}")]
    Stopped {
        /// The process.
        pid: i32,
        /// The stop.
        what: String,
    },
}
