//! Instructions on this machine's own processor, as the reference for an emulator.
//!
//! [`single`] executes single instructions. [`stepper`] executes a whole program whose memory and
//! registers the caller provides. Both keep the foreign code in a process of its own.
//!
//! Not here: what the results are compared with. On anything but Linux on x86-64 there is nothing.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod error;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod extended;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod maps;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod pin;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod ptrace;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod single;
#[cfg(test)]
#[path = "../tests/common/skip.rs"]
mod skip;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod stepper;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use error::{StepError, TraceError};
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use extended::Extended;
