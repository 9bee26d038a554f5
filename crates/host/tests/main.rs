//! Tests of the recorder, on programs of their own.

mod common;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod classify;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod modes;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod record;
