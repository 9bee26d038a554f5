//! The emulated machine, compared with the processor.
//!
//! `differential` compares single instructions, `lockstep` whole programs; [`flat`] runs bare code
//! for conformance suites.
#![forbid(unsafe_code)]

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod differential;
pub mod flat;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod lockstep;
