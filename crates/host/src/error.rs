//! Errors of a recording.

use std::ffi::OsString;
use std::io;
use unwind_sim_emulator_native::TraceError;
use unwind_sim_unwind::printable::Printable;

/// Why a recording could not be made or was aborted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The program could not be started.
    #[error("cannot run {}: {error}", Printable::new(.program.as_encoded_bytes()))]
    Launch {
        /// The program.
        program: OsString,
        /// `execve`'s error.
        error: io::Error,
    },
    /// The working directory could not be entered.
    #[error("cannot enter the directory {}: {error}", Printable::new(.directory.as_encoded_bytes()))]
    Directory {
        /// The directory.
        directory: OsString,
        /// `chdir`'s error.
        error: io::Error,
    },
    /// An argument or variable holds a NUL byte.
    #[error("{} contains a NUL byte, so it cannot be passed to a program", Printable::new(.0.as_encoded_bytes()))]
    NulByte(OsString),
    /// The kernel does not allow this process to trace.
    #[error(
        "may not trace process {pid}: {error}; ptrace needs the same user, and one of: root, \
         CAP_SYS_PTRACE, or kernel.yama.ptrace_scope = 0 (for -p); a container must be started \
         with --cap-add=SYS_PTRACE and a seccomp profile that allows ptrace; no other tracer \
         (gdb, strace) may be attached"
    )]
    Denied {
        /// The process.
        pid: i32,
        /// `PTRACE_SEIZE`'s error.
        error: io::Error,
    },
    /// There is no such process.
    #[error("there is no process {pid}")]
    NoProcess {
        /// The process.
        pid: i32,
    },
    /// The program runs in 32-bit mode.
    #[error("process {pid} is a 32-bit program; only x86-64 programs can be recorded")]
    NotX86_64 {
        /// The process.
        pid: i32,
    },
    /// A symbol to sample at, or to record from, was found in no image.
    #[error("no image loaded by the program contains {0}")]
    NotLocated(String),
    /// A system call on the traced program failed.
    #[error("{call} of thread {tid} failed: {error}")]
    System {
        /// The name of the call.
        call: &'static str,
        /// The thread.
        tid: i32,
        /// The call's error.
        error: io::Error,
    },
    /// The [`crate::Recorder`] returned an error.
    #[error("the recording could not be written: {0}")]
    Recorder(#[source] crate::RecorderError),
}

impl From<TraceError> for HostError {
    fn from(error: TraceError) -> HostError {
        let TraceError { call, tid, error } = error;
        HostError::System { call, tid, error }
    }
}

impl HostError {
    /// Whether the thread just vanished, because it was killed or its process ended.
    pub(crate) fn is_gone(&self) -> bool {
        const ESRCH: i32 = nix::libc::ESRCH;
        matches!(self, HostError::System { error, .. } if error.raw_os_error() == Some(ESRCH))
    }
}
