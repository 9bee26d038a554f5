//! What the kernel knows of each process. One runs: its memory is in the machine, its descriptors
//! are in [`super::files::Files`]; those of the others wait here. Not here: creating and ending
//! processes (`calls::tasks`, `end`).

use super::clock::{SECOND, UP};
use super::identity::{Identity, Settings};
use super::kernel::Kernel;
use super::layout::Layout;
use super::resources::RESOURCES;
use super::scheduling::Scheduling;
use super::signals::{SIGCHLD, Signals};
use super::task::Task;
use super::threads::{Parked, Thread};
use super::usage::Usage;
use crate::address_space::SpaceId;
use crate::state::State;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A process, besides its memory and its descriptors.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) number: u32,
    /// The number of its parent; that of `init` if that has ended.
    pub(super) parent: u32,
    pub(super) group: u32,
    pub(super) session: u32,
    /// The terminal that controls it, by number.
    pub(super) terminal: Option<u32>,
    /// The foreground of the terminal that controlled the session it leads, until that was hung up;
    /// 0 for none.
    pub(super) old_foreground: u32,
    /// The signal that its parent gets when it ends; 0 for none.
    pub(super) exit_signal: u8,
    /// Its address space.
    pub(super) space: SpaceId,
    /// Whether it uses its parent's memory, and its parent waits (`vfork`).
    pub(super) borrows: bool,
    /// Whether it has called `execve`.
    pub(super) has_executed: bool,
    /// Another process has changed its limit of the stack since it ran.
    pub(super) stack_to_fit: bool,
    /// The signal that stopped it.
    pub(super) stopped: Option<u8>,
    /// The thread that traced its first thread, if that has ended before the others.
    pub(super) first_tracer: Option<Task>,
    /// The thread of its parent that has created it.
    pub(super) creator: u32,
    /// Whether its parent has to be told that it was stopped or continued.
    pub(super) untold: bool,
    pub(super) layout: Layout,
    pub(super) signals: Signals,
    /// Soft and hard limits, by resource.
    pub(super) resources: [[u64; 2]; RESOURCES],
    pub(super) args: Rc<Vec<Vec<u8>>>,
    pub(super) env: Rc<Vec<Vec<u8>>>,
    pub(super) settings: Settings,
    /// The thread that runs when the process does.
    pub(super) thread: Thread,
    /// The others, by number.
    pub(super) others: BTreeMap<u32, Parked>,
    /// The status of the first thread, once it has ended.
    pub(super) first_ended: Option<i32>,
    /// It has ended; another one must run.
    pub(super) has_ended: bool,
    /// When it was created, nanoseconds of uptime.
    pub(super) begun: u64,
    /// Processor time of the threads that have ended, nanoseconds.
    pub(super) ended_time: u64,
    /// What the children have used for which it has waited, and theirs.
    pub(super) children: Usage,
    /// Whether its instructions are reported.
    pub(super) observed: bool,
}

impl Process {
    pub(super) fn new(
        number: u32,
        parent: u32,
        space: SpaceId,
        resources: [[u64; 2]; RESOURCES],
    ) -> Process {
        // The leader of its own group, in the session of its parent, without a terminal.
        Process {
            number,
            parent,
            group: number,
            session: parent,
            terminal: None,
            old_foreground: 0,
            exit_signal: SIGCHLD,
            space,
            borrows: false,
            has_executed: false,
            stack_to_fit: false,
            stopped: None,
            first_tracer: None,
            creator: parent,
            untold: false,
            layout: Layout::default(),
            signals: Signals::default(),
            resources,
            args: Rc::default(),
            env: Rc::default(),
            settings: Settings::default(),
            thread: Thread::new(number, Vec::new()),
            others: BTreeMap::new(),
            first_ended: None,
            has_ended: false,
            // Before any instruction was executed: the machine has been up for a while already.
            begun: UP * SECOND,
            ended_time: 0,
            children: Usage::default(),
            observed: true,
        }
    }

    /// A child of this process, before it has run; its only thread is a copy of the running one.
    pub(super) fn child(&self, number: u32, space: SpaceId, borrows: bool, begun: u64) -> Process {
        Process {
            number,
            parent: self.number,
            space,
            borrows,
            has_executed: false,
            old_foreground: 0,
            first_tracer: None,
            creator: self.thread.number,
            untold: false,
            signals: self.signals.child(),
            settings: Settings {
                // A child does not inherit PR_SET_PDEATHSIG (prctl(2)).
                death_signal: 0,
                ..self.settings
            },
            thread: Thread {
                filters: self.thread.filters.clone(),
                scheduling: self.thread.scheduling.child(),
                ..Thread::new(number, self.thread.name.clone())
            },
            others: BTreeMap::new(),
            first_ended: None,
            begun,
            ended_time: 0,
            children: Usage::default(),
            ..self.clone()
        }
    }
}

impl Process {
    /// Whether a thread of it is stopped: by its tracer if it has one, otherwise by a signal.
    pub(super) fn stops(&self, thread: &Thread) -> bool {
        match &thread.traced {
            Some(traced) => traced.stop.is_some(),
            None => self.stopped.is_some(),
        }
    }

    /// All threads, of which some may have ended.
    pub(super) fn threads(&self) -> impl Iterator<Item = &Thread> {
        let others = self.others.values().map(|other| &other.thread);
        others.chain([&self.thread])
    }
}

/// A process that does not run. Its files are in [`super::files::Files`].
#[derive(Clone, Debug)]
pub(super) struct ParkedProcess {
    pub(super) process: Process,
    /// The registers of its running thread.
    pub(super) state: State,
}

/// A process that has ended, until its parent waits for it.
#[derive(Clone, Debug)]
pub(super) struct Zombie {
    pub(super) number: u32,
    pub(super) parent: u32,
    pub(super) group: u32,
    pub(super) session: u32,
    pub(super) exit_signal: u8,
    /// The thread that traces it; only that one's process may wait for it.
    pub(super) tracer: Option<Task>,
    pub(super) name: Vec<u8>,
    /// When it was created, nanoseconds of uptime.
    pub(super) begun: u64,
    /// As `wait4` returns it.
    pub(super) status: u32,
    pub(super) identity: Identity,
    /// Those of its first thread.
    pub(super) scheduling: Scheduling,
    pub(super) resources: [[u64; 2]; RESOURCES],
    /// What it and its children have used.
    pub(super) usage: Usage,
}

impl Kernel {
    /// Runs another thread from here on, of this or another process.
    pub(super) fn switch_to(&mut self, task: Task) {
        self.count_time();
        if task.process != self.process.number {
            self.switch_process(task.process);
        }
        self.switch_thread(task.thread);
        self.begin_time();
    }

    fn switch_process(&mut self, number: u32) {
        let Some(mut other) = self.processes.remove(&number) else {
            return;
        };
        self.machine.core.memory.switch_to(other.process.space);
        std::mem::swap(&mut self.machine.core.state, &mut other.state);
        self.files.switch(number);
        std::mem::swap(&mut self.process, &mut other.process);
        if std::mem::take(&mut self.process.stack_to_fit) {
            self.fit_stack();
        }
        if other.process.has_ended {
            self.release(other.process.space);
            self.files.forget(other.process.number);
        } else {
            self.processes.insert(other.process.number, other);
        }
    }

    /// Drops a space that does not run, if no process uses it.
    pub(super) fn release(&mut self, space: SpaceId) {
        if self.all_processes().all(|process| process.space != space) {
            self.machine.core.memory.remove_space(space);
        }
    }

    fn switch_thread(&mut self, number: u32) {
        let process = &mut self.process;
        let Some(mut other) = process.others.remove(&number) else {
            return;
        };
        std::mem::swap(&mut self.machine.core.state, &mut other.state);
        std::mem::swap(&mut process.signals.own, &mut other.signals);
        std::mem::swap(&mut process.thread, &mut other.thread);
        if other.thread.has_ended {
            process.ended_time += other.thread.time
        } else {
            process.others.insert(other.thread.number, other);
        }
        let first = process.others.get(&process.number);
        process.signals.left_to_first = first.map_or(0, |first| !first.signals.blocked);
    }
}
