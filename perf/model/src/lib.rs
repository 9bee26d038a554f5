//! Sampling in a kernel as a deterministic model in virtual time: CPUs, tasks, interrupts,
//! events, rings, and user callchains that come later.
//!
//! A [`World`] does [`Action`]s one by one; a script or a seed gives them. What happened is in
//! its log, what a reader gets in its records.

#![forbid(unsafe_code)]

mod action;
mod apply;
pub mod bpf;
mod branches;
mod branches_text;
mod deferred;
mod exit;
mod frequency;
mod fuzz;
mod interrupt;
mod join;
pub mod lbr;
mod log;
mod mutant;
mod oracle;
mod oracle_branches;
mod oracle_programs;
mod oracle_records;
mod overflow;
mod perf_data;
mod programs;
mod programs_text;
mod reader;
mod record;
mod refused;
mod registers;
mod rng;
mod rule;
mod sampling;
mod scenario;
mod scenario_error;
mod scenario_programs;
mod scenario_setup;
mod scenario_stacks;
mod scenario_text;
mod scenario_words;
mod setup;
mod slots;
mod stack;
mod user_memory;
mod vary;
mod walk;
mod world;

pub use action::Action;
pub use apply::{LOG_MAX, RECORD_BYTES_MAX, RUN_NS_MAX};
pub use branches::{Crash, Kept};
pub use fuzz::Schedule;
pub use join::{Joined, Outcome, Run, items, join};
pub use log::{Context, Entry, Fact, Handling};
pub use mutant::Mutant;
pub use oracle::check;
pub use perf_data::{EPOCH_NS, perf_data};
pub use programs::Program;
pub use record::{Body, Branches, Record};
pub use refused::Refused;
pub use registers::{FakeRegs, Registers};
pub use rule::{Rule, Violation};
pub use sampling::{Constant, Handler, Overflown, TimerFlow, TimerRegs, UserOnly, timer_flow};
pub use scenario::{ACTIONS_MAX, SCENARIO_BYTES_MAX, Scenario};
pub use scenario_error::{ScenarioError, ScenarioErrorKind};
pub use scenario_programs::{OBJECT_BYTES_MAX, ObjectRequest};
pub use scenario_stacks::{PROGRAM_INSTRUCTIONS_MAX, PROGRAM_STACKS_MAX, StackFrom, StackRequest};
pub use scenario_text::{bless, output};
pub use setup::{
    CgroupSetup, EventSetup, Form, Kind, MAX_STACK, ON_STACK_ENTRIES, PMU_PERIOD_MIN, Refusal,
    RfcBuffer, Setup, TIMER_FLOOR_NS, UNWIND_MAX_ENTRIES, UserUnwind, timer_period, validate,
};
pub use stack::{Leaf, Numbered, Scripted, StackId, StackSource, UserStack};
pub use user_memory::{Pointers, UserMemory};
pub use walk::{Found, Walk};
pub use world::{CPUS_MAX, EVENTS_MAX, TASKS_MAX, World};

use stack::{KERNEL_BASE as KERNEL_TEXT, MACHINERY as MACHINERY_TEXT};
use unwind_sim_perf_data::callchain::{
    PERF_CONTEXT_KERNEL as KERNEL, PERF_CONTEXT_USER as USER,
    PERF_CONTEXT_USER_DEFERRED as DEFERRED,
};
