//! What can go wrong with executing cases, other than the cases themselves.

use std::io;

/// Why cases could not be executed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NativeError {
    /// A call of this process failed.
    #[error("{call} failed: {error}")]
    System {
        /// Which call.
        call: &'static str,
        /// Its error.
        error: io::Error,
    },
    /// A call with which the child shuts itself in failed.
    #[error("the child's {call} failed: {error}")]
    Setup {
        /// Which call.
        call: &'static str,
        /// Its error.
        error: io::Error,
    },
    /// The child ended before it was ready.
    #[error("the child ended before it was ready: {0}")]
    NotReady(std::process::ExitStatus),
    /// There are fewer results than cases.
    #[error("{cases} cases and room for {results} results")]
    TooFewResults {
        /// How many cases there are.
        cases: usize,
        /// How many results fit.
        results: usize,
    },
    /// An instruction has no bytes, or too many.
    #[error("case {index}: an instruction has 1 to 15 bytes, not {length}")]
    CodeLength {
        /// Which case.
        index: usize,
        /// `code_len`.
        length: u8,
    },
    /// Reserved bits of MXCSR are set, which no instruction can load.
    #[error("case {index}: MXCSR {mxcsr:#x} has reserved bits")]
    Mxcsr {
        /// Which case.
        index: usize,
        /// Its value.
        mxcsr: u32,
    },
}

impl NativeError {
    /// Does this machine not let us have such a child? A kernel without memfd or seccomp, a
    /// container that forbids either, or memfds that cannot be executed (`vm.memfd_noexec`).
    pub fn is_denied(&self) -> bool {
        use io::ErrorKind::{PermissionDenied, Unsupported};
        let (NativeError::System { error, .. } | NativeError::Setup { error, .. }) = self else {
            return false;
        };
        matches!(error.kind(), PermissionDenied | Unsupported)
    }
}
