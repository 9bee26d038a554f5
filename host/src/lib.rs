//! What touches this machine: the ptrace recorder, and single instructions on its processor.
//!
//! [`record`] runs a program, or attaches to one, stops it where [`RecorderOptions`] say, and hands
//! what it sees to a [`Recorder`]: mappings, threads, and samples of registers, stacks and, if it
//! single-steps, the truth of a shadow stack ([`unwind_sim_unwind::truth`]).
//!
//! [`native`] executes single instructions as an emulator's authority, [`stepper`] those of a
//! whole program whose memory and registers somebody else provides. [`gdb`] asks a debugging stub
//! about a machine that it has stopped.
//!
//! Not here: files of any format, symbols (the recorder is asked where a name is), unwinding.
//! On anything but Linux on x86-64 there is only the [`plan`].

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod bpf;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod error;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod gdb;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod maps;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod memory;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod native;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod pin;
pub mod plan;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod ptrace;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod recorder;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod signals;
#[cfg(test)]
#[path = "../../tests/common/skip.rs"]
mod skip;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod stepper;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use error::HostError;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use maps::Mapping;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use memory::ProcessMemory;
pub use plan::{At, FetchFrame, Plan, Point};
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use recorder::{
    AfterLimit, End, Event, Launch, Next, ProgramEnd, Recorder, RecorderError, RecorderOptions,
    Sample, StackPiece, StackRole, Summary, Target, may_trace, record,
};
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use signals::{end_by_signal, stop_on_signals};
