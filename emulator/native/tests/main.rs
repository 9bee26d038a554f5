//! Tests of the runner of single instructions.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[path = "common/random.rs"]
mod random;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[path = "common/skip.rs"]
mod skip;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod single;
