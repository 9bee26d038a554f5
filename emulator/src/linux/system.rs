//! What the kernel knows besides its processes, and all that a snapshot keeps of it besides the
//! content of memory.

use super::PID;
use super::clock::Clock;
use super::files;
use super::ipc::Ipc;
use super::locks::Locks;
use super::message_queues::MessageQueues;
use super::objects::Objects;
use super::observer::Event;
use super::others::Init;
use super::outcome::Outcome;
use super::process::{ParkedProcess, Process, Zombie};
use super::resources::RESOURCES;
use super::scheduling::Scheduling;
use super::share::Schedule;
use super::task::Task;
use super::tracing::EndedThread;
use super::waiter::Waiter;
use std::collections::{BTreeMap, VecDeque};

/// What belongs to no single process or file. A snapshot copies it.
#[derive(Clone, Debug)]
pub(super) struct System {
    /// The processes that have ended, until their parents wait for them.
    pub(super) ended: Vec<Zombie>,
    /// The traced threads that have ended, until their tracers wait for them.
    pub(super) ended_threads: Vec<EndedThread>,
    pub(super) init: Init,
    /// The number of the next thread or process.
    pub(super) next_number: u32,
    /// The thread that the observer knows to run.
    pub(super) told: Task,
    /// Whether the observer has been told that the running process is observed.
    pub(super) told_observed: bool,
    pub(super) schedule: Schedule,
    /// The threads that wait for futexes, those that have waited longest first.
    pub(super) futexes: VecDeque<Waiter>,
    pub(super) ipc: Ipc,
    pub(super) message_queues: MessageQueues,
    pub(super) locks: Locks,
    /// Increased whenever something happens that a thread may wait for.
    pub(super) changes: u64,
    /// What the observer has not been told yet.
    pub(super) events: Vec<Event>,
    /// How often the limit of tasks has refused one.
    pub(super) refusals: u32,
    /// How the first process ended.
    pub(super) first_outcome: Option<Outcome>,
}

impl System {
    pub(super) fn new(schedule: Schedule, resources: [[u64; 2]; RESOURCES]) -> System {
        System {
            ended: Vec::new(),
            ended_threads: Vec::new(),
            init: Init {
                scheduling: Scheduling::default(),
                resources,
            },
            next_number: PID + 1,
            told: Task::FIRST,
            told_observed: true,
            schedule,
            futexes: VecDeque::new(),
            ipc: Ipc::default(),
            message_queues: MessageQueues::default(),
            locks: Locks::default(),
            changes: 0,
            events: Vec::new(),
            refusals: 0,
            first_outcome: None,
        }
    }
}

/// What the kernel knows.
#[derive(Debug)]
pub(super) struct KernelState {
    pub(super) files: files::Saved,
    pub(super) objects: Objects,
    pub(super) process: Process,
    pub(super) processes: BTreeMap<u32, ParkedProcess>,
    pub(super) system: System,
    pub(super) clock: Clock,
    pub(super) outcome: Option<Outcome>,
    /// Number of notices.
    pub(super) notices: usize,
}
