//! Runs of the emulated machine and recordings behind the protocols of debuggers: [`gdb`] speaks
//! gdb's remote protocol, and [`dap`] the Debug Adapter Protocol of editors.
//!
//! Both show one [`Debuggee`](debuggee::Debuggee): the states of `unwind-sim-judge`, with what
//! `unwind-sim-view` tells of each. Nothing here computes a verdict, and nothing can be changed: a run
//! is gone through, forwards and backwards, as it was.
#![forbid(unsafe_code)]

mod commands;
pub mod dap;
pub mod debuggee;
mod error;
pub mod gdb;
mod interrupts;
mod tell;

pub use error::Error;
pub use interrupts::Interrupter;
