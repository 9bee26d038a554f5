//! What touches this machine: the ptrace recorder, and single instructions on its processor.
//!
//! [`record`] runs a program, or attaches to one, stops it where [`Options`] say, and hands what
//! it sees to a [`Recorder`]: mappings, threads, and samples of registers, stacks and, if it
//! single-steps, the truth of a shadow stack ([`unwind_sim_unwind::truth`]).
//!
//! [`native`] executes single instructions as an emulator's authority, [`stepper`] those of a
//! whole program whose memory and registers somebody else provides. [`gdb`] asks a debugging stub
//! about a machine that it has stopped.
//!
//! Not here: files of any format, symbols (the recorder is asked where a name is), unwinding.
//! On anything but Linux on x86-64 the crate is empty.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod approach;
pub mod bpf;
mod breakpoints;
mod code;
mod error;
pub mod gdb;
mod launch;
mod maps;
mod memory;
pub mod native;
mod options;
mod pin;
mod places;
mod ptrace;
mod recorder;
mod release;
mod sample;
mod session;
mod signals;
#[cfg(test)]
#[path = "../../tests/common/skip.rs"]
mod skip;
mod step;
mod step_over;
pub mod stepper;
mod task;
mod threads;

pub use error::HostError;
pub use launch::may_trace;
pub use maps::Mapping;
pub use memory::ProcessMemory;
pub use options::{AfterLimit, At, FetchFrame, Options, Point, Program, Target};
pub use recorder::{
    End, Event, Next, ProgramEnd, Recorder, RecorderError, Sample, StackPiece, StackRole, Summary,
};
pub use session::record;
pub use signals::{end_by_signal, stop_on_signals};
