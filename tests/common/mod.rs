//! What the integration tests share.
#![allow(dead_code, reason = "every test uses a part of it")]

pub(crate) mod decode;
pub(crate) mod skip;

/// Why this machine does not let us trace a child of our own; `None` if it does.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(crate) fn no_ptrace() -> Option<String> {
    unwind_sim_host::may_trace()
        .err()
        .map(|error| error.to_string())
}

/// There is nothing to trace with.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub(crate) fn no_ptrace() -> Option<String> {
    Some("programs are traced on Linux on x86-64 only".into())
}
