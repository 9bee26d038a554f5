//! The ptrace recorder: what it reports, and the trait that receives it.

mod approach;
mod breakpoints;
mod code;
mod kill;
mod launch;
mod options;
mod places;
mod release;
mod sample;
mod session;
mod step;
mod step_over;
mod task;
mod threads;
mod watchdog;

pub use launch::may_trace;
pub use options::{AfterLimit, Launch, RecorderOptions, Target};
pub use session::record;

use crate::memory::ProcessMemory;
use std::ops::Range;
use unwind_sim_emulator_native::maps::Mapping;
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::{Stats, Truth};

/// An error of a [`Recorder`].
pub type RecorderError = Box<dyn std::error::Error + Send + Sync>;

/// A change of the world between samples.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Executable memory appeared.
    Map {
        /// The process.
        pid: u32,
        /// The mapping.
        mapping: &'a Mapping,
        /// The process' memory, for images without a file (the vDSO).
        memory: &'a ProcessMemory,
    },
    /// Executable memory went away.
    Unmap {
        /// The process.
        pid: u32,
        /// The addresses.
        range: Range<u64>,
    },
    /// The process executes another program: everything was unmapped.
    Exec {
        /// The process.
        pid: u32,
    },
    /// A process or thread started.
    Fork {
        /// The new process; equal to `parent_pid` for a thread.
        pid: u32,
        /// The new thread.
        tid: u32,
        /// The parent process, whose mappings a new process inherits.
        parent_pid: u32,
    },
    /// A process or thread ended.
    Exit {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
    },
    /// A thread got a name.
    Comm {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// The name.
        name: &'a str,
    },
}

/// What a piece of recorded memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StackRole {
    /// The stack that rsp points into.
    Stack,
    /// Another stack on which the chain continues: one interrupted by a signal on an alternate
    /// stack, or left by a function that loaded rsp.
    OtherStack,
}

/// A copied part of a stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StackPiece {
    /// The role of the stack.
    pub role: StackRole,
    /// The mapping that contains it.
    pub bounds: Range<u64>,
    /// Address of the first byte: up to 512 bytes below rsp.
    pub address: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// One sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sample {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Instructions executed since recording started, if the program is single-stepped; otherwise
    /// nanoseconds since then.
    pub time: u64,
    /// Register sets by role.
    pub regs: SampleRegs,
    /// Stack copies, the one of rsp first.
    pub stacks: Vec<StackPiece>,
    /// The true chain, at the live registers ([`SampleRegs::live`]).
    pub truth: Truth,
    /// Index into [`crate::At::Points`], if the sample was taken at a point.
    pub point: Option<usize>,
}

/// Whether the recording continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Continue.
    Go,
    /// Stop: enough was seen.
    Stop,
}

/// Receives what a recording sees, in order of time.
pub trait Recorder {
    /// The world changed.
    fn event(&mut self, event: &Event<'_>) -> Result<(), RecorderError>;

    /// A sample was taken.
    fn sample(&mut self, sample: Sample) -> Result<Next, RecorderError>;

    /// The addresses of `name` in this new mapping; empty if it is not there. `name` is
    /// [`crate::Point::name`], [`crate::Point::own`] or [`crate::Plan::from`].
    fn locate(&mut self, mapping: &Mapping, name: &str) -> Vec<u64>;
}

/// How the program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProgramEnd {
    /// It exited with this status.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
    /// It keeps running: the recorder had only attached to it.
    RunsOn,
}

/// Why the recording ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The program ended.
    Program,
    /// [`crate::Plan::max_instructions`] or [`crate::Plan::max_samples`] was reached.
    Limit,
    /// [`RecorderOptions::timeout`] was reached.
    Timeout,
    /// [`RecorderOptions::tasks_max`] was exceeded.
    Tasks,
    /// The recorder returned [`Next::Stop`].
    Recorder,
    /// [`crate::Plan::stop`] became true, or the recording failed.
    Interrupted,
}

/// The outcome of a recording.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Summary {
    /// How the program ended.
    pub program: ProgramEnd,
    /// Why the recording ended.
    pub end: End,
    /// Samples taken.
    pub samples: u64,
    /// Instructions single-stepped since recording started.
    pub instructions: u64,
    /// Instructions single-stepped on the way to [`crate::Plan::from`].
    pub approach: u64,
    /// Whether [`crate::Plan::from`] was set and execution reached it.
    pub from_reached: bool,
    /// Threads seen.
    pub threads: u64,
    /// Names that no image contains.
    pub not_located: Vec<String>,
    /// Statistics of the shadow stacks, summed over all threads.
    pub tracker: Stats,
}
