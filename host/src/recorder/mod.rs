//! What a recording hands out, and to whom.

mod approach;
mod breakpoints;
mod code;
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

pub use launch::may_trace;
pub use options::{AfterLimit, Launch, RecorderOptions, Target};
pub use session::record;

use crate::maps::Mapping;
use crate::memory::ProcessMemory;
use std::ops::Range;
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::{Stats, Truth};

/// Why a recorder cannot go on.
pub type RecorderError = Box<dyn std::error::Error + Send + Sync>;

/// A change of the world between samples.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Executable memory appeared.
    Map {
        /// In this process.
        pid: u32,
        /// The mapping.
        mapping: &'a Mapping,
        /// The process' memory, for images that are in no file (the vdso).
        memory: &'a ProcessMemory,
    },
    /// Executable memory went away.
    Unmap {
        /// In this process.
        pid: u32,
        /// Addresses.
        range: Range<u64>,
    },
    /// The process runs another program: everything was unmapped.
    Exec {
        /// The process.
        pid: u32,
    },
    /// A process or thread began.
    Fork {
        /// The new process; equal to `parent_pid` for a thread.
        pid: u32,
        /// The new thread.
        tid: u32,
        /// The process that made it, whose mappings a new process inherits.
        parent_pid: u32,
    },
    /// A process or thread ended.
    Exit {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
    },
    /// A thread has this name.
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
    /// A stack that the chain continues on: interrupted by a signal on an alternate stack, or
    /// left by a function that loaded rsp.
    OtherStack,
}

/// A copied piece of a stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StackPiece {
    /// Which stack.
    pub role: StackRole,
    /// The mapping that it lies in.
    pub bounds: Range<u64>,
    /// Address of the first byte: up to 512 bytes below rsp.
    pub address: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// One sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Instructions executed since the recording began, where the program is single-stepped;
    /// else nanoseconds since then.
    pub time: u64,
    /// Register sets by role.
    pub regs: SampleRegs,
    /// Stacks, the one of rsp first.
    pub stacks: Vec<StackPiece>,
    /// The true chain, at the live registers ([`SampleRegs::live`]).
    pub truth: Truth,
    /// Index into [`crate::At::Points`], if the sample was taken at one.
    pub point: Option<usize>,
}

/// Does the recording go on?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Yes.
    Go,
    /// No: enough was seen.
    Stop,
}

/// Takes what a recording sees, in the order of time.
pub trait Recorder {
    /// The world changed.
    fn event(&mut self, event: &Event<'_>) -> Result<(), RecorderError>;

    /// A sample was taken.
    fn sample(&mut self, sample: Sample) -> Result<Next, RecorderError>;

    /// The addresses that `name` has in this mapping, which was just made; none if it is not
    /// there. `name` is [`crate::Point::name`], [`crate::Point::own`] or
    /// [`crate::Plan::from`].
    fn locate(&mut self, mapping: &Mapping, name: &str) -> Vec<u64>;
}

/// How the program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProgramEnd {
    /// It exited with this status.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
    /// It runs on: it was only attached to.
    RunsOn,
}

/// Why the recording ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The program ended.
    Program,
    /// [`crate::Plan::max_instructions`] or [`crate::Plan::max_samples`] was reached.
    Limit,
    /// The recorder wanted no more.
    Recorder,
    /// [`crate::Plan::stop`] became true, or the recording failed.
    Interrupted,
}

/// What a recording was.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Summary {
    /// How the program ended.
    pub program: ProgramEnd,
    /// Why the recording ended.
    pub end: End,
    /// Samples taken.
    pub samples: u64,
    /// Instructions single-stepped since the recording began.
    pub instructions: u64,
    /// Instructions single-stepped on the way to [`crate::Plan::from`].
    pub approach: u64,
    /// Whether [`crate::Plan::from`] was set and execution reached it.
    pub from_reached: bool,
    /// Threads seen.
    pub threads: u64,
    /// Names that no image had.
    pub not_located: Vec<String>,
    /// What the shadow stacks saw, in sum.
    pub tracker: Stats,
}
