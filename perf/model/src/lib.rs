//! Sampling in a kernel as a deterministic model in virtual time: CPUs, tasks, interrupts,
//! events, rings, and user callchains that come later.
//!
//! A [`World`] does [`Action`]s one by one; a script or a seed gives them. What happened is in
//! its log, what a reader gets in its records.

#![forbid(unsafe_code)]

mod action;
pub mod bpf;
mod fuzz;
mod log;
mod mutant;
mod oracle;
mod perf_data;
mod programs;
#[path = "../tests/common/random.rs"]
mod random;
mod record;
mod refused;
mod registers;
mod sampling;
mod scenario;
mod setup;
mod stack;
mod world;

pub use action::Action;
pub use fuzz::Schedule;
pub use log::{Context, Entry, Fact, Handling};
pub use mutant::Mutant;
pub use oracle::{Joined, Outcome, Rule, Run, Violation, Walk, WalkVerdict, check, items, join};
pub use perf_data::{EPOCH_NS, perf_data};
pub use programs::{ObjectRequest, Program};
pub use record::{Body, Branches, Record};
pub use refused::Refused;
pub use registers::{FakeRegs, Registers};
pub use sampling::{Constant, Handler, Overflown, TimerFlow, TimerRegs, UserOnly, timer_flow};
pub use scenario::{
    ACTIONS_MAX, OBJECT_BYTES_MAX, PROGRAM_INSTRUCTIONS_MAX, PROGRAM_STACKS_MAX,
    SCENARIO_BYTES_MAX, Scenario, ScenarioError, ScenarioErrorKind, StackFrom, StackRequest, bless,
    output,
};
pub use setup::{
    CPUS_MAX, CgroupSetup, EVENTS_MAX, EventSetup, Form, Kind, MAX_STACK, ON_STACK_ENTRIES,
    PMU_PERIOD_MIN, Refusal, RfcBuffer, Setup, TASKS_MAX, TIMER_FLOOR_NS, UNWIND_MAX_ENTRIES,
    UserUnwind, timer_period, validate,
};
pub use stack::{Leaf, Numbered, Pointers, Scripted, StackId, StackSource, UserMemory, UserStack};
pub use world::{Crash, LOG_MAX, RECORD_BYTES_MAX, RUN_NS_MAX, TaskBranches, World};

use unwind_sim_perf_data::callchain::{
    PERF_CONTEXT_KERNEL as KERNEL, PERF_CONTEXT_USER as USER,
    PERF_CONTEXT_USER_DEFERRED as DEFERRED,
};

/// First address of the kernel's text in the model.
const KERNEL_TEXT: u64 = 0xffff_ffff_8100_0000;
/// Bytes of the kernel's text.
const KERNEL_TEXT_BYTES: u64 = 0x100_0000;
/// First address of the functions that take a tracepoint's sample.
const MACHINERY_TEXT: u64 = 0xffff_ffff_8180_0000;
