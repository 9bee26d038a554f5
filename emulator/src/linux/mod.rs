//! The Linux that programs in the emulated machine see: processes and threads on one processor.
//!
//! [`Kernel`] starts a program as `execve` does, runs it and what it starts, and answers system
//! calls. A thread runs for a number of instructions that the seed gives, or until it waits; then
//! the next one does. The run ends with its first process and all that can still go on. Nothing of
//! the host is visible except the files below [`ProcessOptions::root`]: clock, random numbers,
//! process numbers and `/proc` are generated, so that the same options give the same run,
//! instruction by instruction. Of those files, the ones behind which is the host's kernel (its procfs,
//! sysfs and so on, wherever they are mounted) are never visible, and the ones behind which is another
//! program or machine only where [`ProcessOptions::allow_fs`] says so. Time advances by one nanosecond for each instruction, and by
//! sleeping.
//!
//! Source: Linux 6.12, x86-64. Not modelled: namespaces, a network beyond the loopback interface,
//! file attributes beyond those of `stat`. A call, or a part of one, that is not modelled fails and leaves a [`Notice`]: what follows may
//! differ from Linux.

mod calls;
mod clock;
mod count;
mod cpuinfo;
mod delivery;
mod end;
mod errno;
mod exec;
mod files;
mod filter;
mod guest;
mod handle;
mod identity;
mod ipc;
mod kernel;
mod layout;
mod limit;
mod locks;
mod message_queues;
mod numbers;
mod objects;
mod observer;
mod options;
mod others;
mod outcome;
mod process;
mod program;
mod quota;
mod resources;
mod rseq;
mod run;
mod schedule;
mod scheduling;
mod share;
mod signals;
mod snapshot;
mod streams;
mod system;
mod task;
mod terminals;
#[cfg(test)]
mod tests;
mod thread_list;
mod threads;
mod tracing;
mod turns;
mod unsupported;
mod usage;
mod waiter;
mod waiting;

pub use end::WaitTarget;
pub use exec::{StartError, StartErrorKind};
pub use files::{FileSystem, FileSystemError, Refusal};
pub use kernel::Kernel;
pub use limit::Limit;
pub use numbers::name as system_call_name;
pub use observer::{MappedFile, ProcessObserver, SystemCall};
pub use options::{Limits, ObservedProcesses, ProcessOptions};
pub use outcome::{Notice, Outcome, SignalOrigin};
pub use program::{End, RunningProgram};
pub use snapshot::Snapshot;
pub use streams::{Input, Output};
pub use task::Task;
pub use thread_list::{ThreadActivity, ThreadAt};
pub use turns::{Misfit, MisfitKind, ScheduleOutcome, Turn, TurnError};
pub use unsupported::Unsupported;
pub use waiting::{MappedCode, Owner, OwnerKnown, WaitFile, Waiting, WaitsFor};

/// The number of the process and of its thread.
pub(crate) const PID: u32 = 1000;
/// The size of the memory that the machine claims to have, bytes.
const MEMORY: u64 = 4 << 30;
/// The number of the process that started the first one, as it starts services, and that adopts those
/// whose parent has ended.
const INIT: u32 = 1;
