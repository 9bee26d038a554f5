//! Tests of the workshop from outside: compiled programs, kernels, damaged files.

#[path = "common/skip.rs"]
mod skip;

mod convert;
mod damage;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod proof;
