//! Random inputs whose right answer is known.
//!
//! [`programs`] makes programs whose unwind tables are right, or wrong in one known place, for
//! `verify`; `abstraction` compares what `tables check` takes an instruction to do with what it does.
//! Only tests and examples use them.
#![forbid(unsafe_code)]

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod abstraction;
pub mod programs;
#[path = "../tests/common/random.rs"]
mod random;
