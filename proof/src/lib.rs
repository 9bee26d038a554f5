//! Tests of the emulated machine and of `verify` itself.
//!
//! `differential` compares single instructions with the processor, `lockstep` whole programs;
//! `abstraction` compares what `tables check` takes an instruction to do with what it does;
//! [`random`] makes programs whose unwind tables are right, or wrong in one known place; [`flat`]
//! runs bare code for conformance suites.
#![forbid(unsafe_code)]

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod abstraction;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod differential;
pub mod flat;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod lockstep;
pub mod random;
