//! Shared by the integration tests.
#![allow(dead_code, reason = "every test uses a part of it")]

pub(crate) mod compiler;
pub(crate) mod decode;
pub(crate) mod skip;
pub(crate) mod tools;

/// Why this machine does not allow tracing a child; `None` if it does.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(crate) fn no_ptrace() -> Option<String> {
    unwind_sim_host::may_trace()
        .err()
        .map(|error| error.to_string())
}

/// Programs cannot be traced here.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub(crate) fn no_ptrace() -> Option<String> {
    Some("programs are traced on Linux on x86-64 only".into())
}
