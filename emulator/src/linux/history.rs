//! Kept for snapshots: what the kernel knows besides the content of memory.

use super::clock::Clock;
use super::files;
use super::observer::Event;
use super::outcome::Outcome;
use super::process::{Ended, ParkedProcess, Process};
use super::schedule::Schedule;
use super::threads::Task;
use super::waiter::Waiter;
use std::collections::{BTreeMap, VecDeque};

/// What the kernel knows.
#[derive(Debug)]
pub(super) struct KernelState {
    pub(super) files: files::Saved,
    pub(super) process: Process,
    /// Their files are in `files`.
    pub(super) processes: BTreeMap<u32, ParkedProcess>,
    pub(super) ended: Vec<Ended>,
    pub(super) clock: Clock,
    pub(super) next_number: u32,
    pub(super) told: Task,
    pub(super) schedule: Schedule,
    pub(super) futexes: VecDeque<Waiter>,
    pub(super) changes: u64,
    pub(super) events: Vec<Event>,
    pub(super) first_outcome: Option<Outcome>,
    pub(super) outcome: Option<Outcome>,
    /// Number of notices.
    pub(super) notices: usize,
}
