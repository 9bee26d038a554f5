//! The threads of all processes, for a view of a run.

use super::kernel::Kernel;
use super::numbers as nr;
use super::task::Task;
use super::threads::Thread;
use crate::state::{Preserved, State};

/// A thread of the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadAt {
    /// The thread.
    pub task: Task,
    /// Its name (`comm`).
    pub name: String,
    /// What it does.
    pub doing: ThreadActivity,
    /// Its instruction pointer, stack pointer and callee-saved registers.
    pub at: Preserved,
}

/// What a thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ThreadActivity {
    /// It executes the next instruction.
    Runs,
    /// It can run, but another thread does.
    CanRun,
    /// It waits in this system call.
    WaitsIn(&'static str),
    /// This signal has stopped its process.
    Stopped(u8),
    /// It has stopped for its tracer, the thread of this number.
    Traced(u32),
}

impl Kernel {
    /// The threads that have not ended, by number.
    pub fn threads(&self) -> Vec<ThreadAt> {
        let running = self.task();
        let own = (&self.process, &self.machine.core.state);
        let parked = self.processes.values().map(|p| (&p.process, &p.state));

        let mut all = Vec::new();
        for (process, state) in std::iter::once(own).chain(parked) {
            if process.has_ended {
                continue;
            }

            let mut add = |thread: &Thread, state: &State| {
                let task = Task {
                    process: process.number,
                    thread: thread.number,
                };

                // Of a traced thread, only its tracer's stop counts.
                let stopped = process.stopped.filter(|_| thread.traced.is_none());

                // A stop counts more than a wait: the wait goes on after it.
                let doing = match (thread.stopped_for(), stopped, &thread.wait) {
                    (Some(tracer), ..) => ThreadActivity::Traced(tracer.thread),
                    (None, Some(signal), _) => ThreadActivity::Stopped(signal),
                    (None, None, Some(wait)) => ThreadActivity::WaitsIn(
                        nr::name(wait.made.number).unwrap_or("a system call"),
                    ),
                    (None, None, None) if task == running => ThreadActivity::Runs,
                    (None, None, None) => ThreadActivity::CanRun,
                };

                // The first thread of a process may have ended before the others.
                if !thread.has_ended {
                    all.push(ThreadAt {
                        task,
                        name: String::from_utf8_lossy(&thread.name).into_owned(),
                        doing,
                        at: state.preserved_at(state.rip),
                    });
                }
            };

            add(&process.thread, state);
            for other in process.others.values() {
                add(&other.thread, &other.state);
            }
        }

        all.sort_unstable_by_key(|thread| thread.task);
        all
    }
}
