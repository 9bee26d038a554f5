//! Tests of the recorder and of the runner of single instructions, on programs of their own.

mod common;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod classify;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod modes;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod native;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod record;
