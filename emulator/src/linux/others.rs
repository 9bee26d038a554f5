//! What calls about another thread or process need to know of it: whether there is such a one, who it
//! belongs to, and how it is scheduled. A process that has ended counts until its parent has waited
//! for it; and so does `init`, which has no memory and never runs.

use super::INIT;
use super::errno::{Answer, Errno};
use super::identity::{Identity, KEEP};
use super::kernel::Kernel;
use super::process::Process;
use super::resources::RESOURCES;
use super::scheduling::Scheduling;
use super::task::Task;

/// The process that started the first one, and that adopts those whose parent has ended. It ignores all
/// signals, belongs to a user outside of the machine's users, as in a user namespace, and nobody may
/// change it.
#[derive(Clone, Debug)]
pub(super) struct Init {
    pub(super) scheduling: Scheduling,
    /// Soft and hard limits, by resource.
    pub(super) resources: [[u64; 2]; RESOURCES],
}

impl Init {
    /// The only thread of `init`.
    pub(super) const TASK: Task = Task {
        process: INIT,
        thread: INIT,
    };

    /// Its name.
    pub(super) const NAME: &str = "init";

    /// No process of the machine can be its user.
    pub(super) fn identity() -> Identity {
        Identity::new(KEEP, KEEP)
    }
}

impl Kernel {
    /// A process that has not ended, by number.
    pub(super) fn process(&self, number: u32) -> Option<&Process> {
        self.all_processes()
            .find(|process| process.number == number)
    }

    /// A process that has not ended, by number.
    pub(super) fn process_mut(&mut self, number: u32) -> Option<&mut Process> {
        if number == self.process.number {
            Some(&mut self.process)
        } else {
            Some(&mut self.processes.get_mut(&number)?.process)
        }
    }

    /// The thread of a number, which in system calls is an `int`; 0 is the running one.
    ///
    /// # Errors
    /// `ESRCH` if there is none.
    pub(super) fn task_of(&self, number: u64) -> Answer<Task> {
        let task = |process| Task {
            process,
            thread: number as u32,
        };
        if number as u32 == 0 {
            return Ok(self.task());
        }
        if number as u32 == INIT {
            return Ok(Init::TASK);
        }
        if let Some(process) = self.process_of(number) {
            return Ok(task(process));
        }

        let mut ended = self.system.ended.iter();
        let ended = ended.find(|ended| ended.number == number as u32);
        ended.map(|ended| task(ended.number)).ok_or(Errno::ESRCH)
    }

    /// Whether the running process has capabilities over another one.
    pub(super) fn is_capable_over(&self, process: u32) -> bool {
        process != INIT && self.files.own.identity.is_capable()
    }

    /// Who a process is.
    pub(super) fn identity_of(&self, process: u32) -> Identity {
        if process == INIT {
            return Init::identity();
        }
        if let Some(files) = self.files.of_process(process) {
            return files.identity.clone();
        }
        let mut ended = self.system.ended.iter();
        let ended = ended.find(|ended| ended.number == process);
        ended.map_or_else(Init::identity, |ended| ended.identity.clone())
    }

    /// How a thread that `task_of` has found is scheduled.
    pub(super) fn scheduling(&mut self, task: Task) -> &mut Scheduling {
        if task == Init::TASK {
            return &mut self.system.init.scheduling;
        }
        let ended = self
            .system
            .ended
            .iter()
            .position(|e| e.number == task.process);
        if let Some(index) = ended {
            return &mut self.system.ended[index].scheduling;
        }
        let process = match self.processes.get_mut(&task.process) {
            Some(parked) => &mut parked.process,
            None => &mut self.process,
        };
        match process.others.get_mut(&task.thread) {
            Some(other) => &mut other.thread.scheduling,
            None => &mut process.thread.scheduling,
        }
    }

    /// The limits of a process that `task_of` has found.
    pub(super) fn resources(&mut self, process: u32) -> &mut [[u64; 2]; RESOURCES] {
        if process == INIT {
            return &mut self.system.init.resources;
        }
        let ended = self.system.ended.iter().position(|e| e.number == process);
        if let Some(index) = ended {
            return &mut self.system.ended[index].resources;
        }
        match self.processes.get_mut(&process) {
            Some(parked) => &mut parked.process.resources,
            None => &mut self.process.resources,
        }
    }

    /// The threads of all processes for which a condition on process, group and user holds, by number.
    pub(super) fn tasks_where(&self, is_it: impl Fn(u32, u32, &Identity) -> bool) -> Vec<Task> {
        let mut all = Vec::new();
        for process in self.all_processes().filter(|process| !process.has_ended) {
            let number = process.number;
            if is_it(number, process.group, &self.identity_of(number)) {
                let threads = process.others.keys().chain([&process.thread.number]);
                all.extend(threads.map(|&thread| Task {
                    process: number,
                    thread,
                }));
            }
        }

        // Zombies, too: they still have a number, a group and an owner.
        for ended in &self.system.ended {
            if is_it(ended.number, ended.group, &ended.identity) {
                all.push(Task {
                    process: ended.number,
                    thread: ended.number,
                });
            }
        }

        if is_it(INIT, INIT, &Init::identity()) {
            all.push(Init::TASK);
        }

        all.sort_unstable();
        all
    }
}
