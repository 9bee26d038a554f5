//! Errors of a traced process.

use std::io;

/// Why a traced process could not be controlled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A system call on the traced process failed.
    #[error("{call} of thread {tid} failed: {error}")]
    System {
        /// The name of the call.
        call: &'static str,
        /// The thread.
        tid: i32,
        /// The call's error.
        error: io::Error,
    },
    /// A stepped process stopped for an unexpected reason.
    #[error("the stepped process {pid} stopped unexpectedly: {what}")]
    Stepped {
        /// The process.
        pid: i32,
        /// The stop.
        what: String,
    },
}

impl TraceError {
    /// The error of the last system call.
    pub(crate) fn last(call: &'static str, tid: i32) -> TraceError {
        TraceError::System {
            call,
            tid,
            error: io::Error::last_os_error(),
        }
    }
}
