//! The places of a recording in each process, and how far each thread is.

use super::{FetchedRegs, Role, StartupPhase};
use hashbrown::HashMap;
use unwind_sim_emulator::linux::Task;

/// Where the places are in a process.
#[derive(Clone)]
pub(super) struct ProcessPlaces {
    /// The roles of addresses.
    pub(super) at: HashMap<u64, Vec<Role>>,
    /// Indices of names not found in any mapping of this program so far.
    pub(super) missing: Vec<usize>,
    pub(super) entry: StartupPhase,
    /// A program was started, but has no name yet.
    pub(super) unnamed: bool,
}

impl ProcessPlaces {
    pub(super) fn new(names: usize) -> ProcessPlaces {
        ProcessPlaces {
            at: HashMap::new(),
            missing: (0..names).collect(),
            entry: StartupPhase::Left,
            unnamed: false,
        }
    }
}

/// How far a thread is.
#[derive(Clone, Default)]
pub(super) struct Progress {
    pub(super) armed: Vec<FetchedRegs>,
    /// rip and rsp at the last place: a signal handler may return the thread to it.
    pub(super) last_place: (u64, u64),
    /// The next instruction is the first of a program, a thread or a signal handler.
    pub(super) begins: bool,
}

impl Progress {
    fn beginning() -> Progress {
        Progress {
            begins: true,
            ..Progress::default()
        }
    }
}

/// Those of processes and threads that do not run.
#[derive(Default)]
pub(super) struct SuspendedTasks {
    processes: HashMap<u32, ProcessPlaces>,
    threads: HashMap<Task, Progress>,
}

impl SuspendedTasks {
    /// A process was created by the running one.
    pub(super) fn forked(&mut self, child: Task, places: &ProcessPlaces) {
        self.processes.insert(child.process, places.clone());
        self.threads.insert(child, Progress::beginning());
    }

    pub(super) fn thread_started(&mut self, task: Task) {
        self.threads.insert(task, Progress::beginning());
    }

    /// Exchanges the running process and thread, if they exist.
    pub(super) fn switch(
        &mut self,
        (from, to): (Task, Task),
        places: &mut ProcessPlaces,
        progress: &mut Progress,
    ) {
        if from.process != to.process
            && let Some(next) = self.processes.remove(&to.process)
        {
            let last = std::mem::replace(places, next);
            self.processes.insert(from.process, last);
        }
        if from != to {
            let next = self.threads.remove(&to).unwrap_or_default();
            let last = std::mem::replace(progress, next);
            self.threads.insert(from, last);
        }
    }

    /// Forgets a thread, and the process if it has no other one.
    pub(super) fn ended(&mut self, task: Task) {
        self.threads.remove(&task);
        if self
            .threads
            .keys()
            .all(|other| other.process != task.process)
        {
            self.processes.remove(&task.process);
        }
    }
}
