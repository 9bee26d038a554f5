//! Shared by the integration tests.
#![allow(dead_code, reason = "every test uses a part of it")]

pub(crate) mod compiler;
pub(crate) mod dap_schema;
pub(crate) mod decode;
pub(crate) mod random;
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

/// The build ID of the C library with which `throws.bin` was recorded.
const LIBC_OF_THROWS: [u8; 20] = [
    0x93, 0xac, 0x61, 0xec, 0x5a, 0x8e, 0xb1, 0x39, 0x6f, 0x9f, 0xbd, 0x35, 0x0e, 0x31, 0x69, 0xa5,
    0x58, 0x52, 0x8a, 0x40,
];

/// Whether this machine has the C library with which `throws.bin` was recorded.
pub(crate) fn has_libc_of_throws() -> bool {
    let libc = std::fs::read("/usr/lib/x86_64-linux-gnu/libc.so.6").unwrap_or_default();
    memchr::memmem::find(&libc, &LIBC_OF_THROWS).is_some()
}
