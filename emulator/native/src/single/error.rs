//! Why cases could not be executed, apart from the cases themselves.

use std::io;

/// Why cases could not be executed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NativeError {
    /// A system call in this process failed.
    #[error("{call} failed: {error}")]
    System {
        /// The call's name.
        call: &'static str,
        /// The call's error.
        error: io::Error,
    },
    /// A system call by which the child isolates itself failed.
    #[error("the child's {call} failed: {error}")]
    Setup {
        /// The call's name.
        call: &'static str,
        /// The call's error.
        error: io::Error,
    },
    /// The child ended before it was ready.
    #[error("the child ended before it was ready: {0}")]
    NotReady(std::process::ExitStatus),
    /// There are fewer results than cases.
    #[error("{cases} cases, but room for only {results} results")]
    TooFewResults {
        /// Number of cases.
        cases: usize,
        /// Number of results that fit.
        results: usize,
    },
    /// An instruction has no bytes, or too many.
    #[error("case {index}: an instruction has 1 to 15 bytes, not {length}")]
    CodeLength {
        /// Index of the case.
        index: usize,
        /// `code_len`.
        length: u8,
    },
    /// Reserved bits of MXCSR are set, which no instruction can load.
    #[error("case {index}: MXCSR {mxcsr:#x} has reserved bits")]
    Mxcsr {
        /// Index of the case.
        index: usize,
        /// The value of MXCSR.
        mxcsr: u32,
    },
    /// A case uses the AVX state, which this processor, or its kernel, does not have.
    #[error("case {index}: no AVX state: this processor or its kernel has no AVX")]
    NoAvx {
        /// Index of the case.
        index: usize,
    },
}

impl NativeError {
    /// Whether this machine does not allow such a child: a kernel without memfd or seccomp, a
    /// container that forbids either, or memfds that cannot be executed (`vm.memfd_noexec`).
    pub fn is_denied(&self) -> bool {
        use io::ErrorKind::{PermissionDenied, Unsupported};
        let (NativeError::System { error, .. } | NativeError::Setup { error, .. }) = self else {
            return false;
        };
        matches!(error.kind(), PermissionDenied | Unsupported)
    }
}
