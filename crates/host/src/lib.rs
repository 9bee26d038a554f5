//! Everything that touches this machine: the ptrace recorder, and the client of gdb stubs.
//!
//! [`record`] runs a program or attaches to one, stops it where [`Plan`] says, and passes what it
//! sees to a [`Recorder`]: mappings, threads, and samples with registers, stacks and, when
//! single-stepping, the ground truth of a shadow stack ([`unwind_sim_unwind::truth`]).
//!
//! [`gdb`] queries a debugging stub about a machine that the stub has stopped.
//!
//! Not here: instructions run on this processor for comparison (`unwind_sim_emulator_native`), file
//! formats, symbols (the [`Recorder`] says where a name is), unwinding. On anything but Linux on
//! x86-64 only [`plan`] exists.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod bpf;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod error;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod gdb;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod job;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod memory;
pub mod plan;
#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
#[path = "../tests/common/random.rs"]
mod random;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod recorder;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod signals;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use error::HostError;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use job::{JobControl, suspend, watch_job_control};
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
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use unwind_sim_emulator_native::maps::Mapping;
