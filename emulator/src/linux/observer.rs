//! What a run reports besides instructions.

use crate::address_space::{AddressSpace, Permissions};
use crate::core::Core;
use crate::machine::Observer;
use crate::stop::Exception;
use std::ops::Range;
use std::rc::Rc;

use super::outcome::Outcome;
use super::task::Task;
use crate::state::{Preserved, State};

/// The file behind a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MappedFile<'a> {
    /// The path below the root.
    pub path: &'a [u8],
    /// Offset in the file at which the mapping starts, bytes.
    pub offset: u64,
}

/// An answered system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SystemCall {
    /// The call's number (rax).
    pub number: u64,
    /// The call's name; empty if the number does not exist.
    pub name: &'static str,
    /// The arguments: rdi, rsi, rdx, r10, r8, r9.
    pub args: [u64; 6],
    /// The result (rax).
    pub result: u64,
    /// Whether the program continues: it has not exited, no signal is about to kill it, and it does
    /// not wait forever.
    pub returns: bool,
    /// The state before the call, with rip after the `syscall`.
    pub before: Preserved,
}

/// Observes what the kernel does. [`Observer::after`] of a `syscall` is called before the call is
/// answered; its mappings, [`ProcessObserver::system_call`] and then signals follow.
pub trait ProcessObserver: Observer {
    /// A program starts, with its stack ending at `stack_end`: the first program, or one that
    /// `execve` starts in place of everything that was mapped. Its mappings follow.
    fn started(&mut self, core: &Core, stack_end: u64) {
        let _ = (core, stack_end);
    }

    /// Memory was mapped, replacing what was there.
    fn mapped(
        &mut self,
        range: Range<u64>,
        permissions: Permissions,
        file: Option<MappedFile<'_>>,
    ) {
        let _ = (range, permissions, file);
    }

    /// The permissions of mapped memory were changed.
    fn protected(
        &mut self,
        range: Range<u64>,
        permissions: Permissions,
        file: Option<MappedFile<'_>>,
    ) {
        self.mapped(range, permissions, file);
    }

    /// Memory was unmapped.
    fn unmapped(&mut self, range: Range<u64>) {
        let _ = range;
    }

    /// The processor raised an exception that the kernel is about to handle. `state` is as
    /// [`crate::Machine::run`] left it.
    fn exception(&mut self, exception: Exception, core: &Core) {
        let _ = (exception, core);
    }

    /// A handler is about to run: `interrupted` is the state in its frame, `handler` the state at
    /// its first instruction, `restorer` the address to which it will return.
    fn signal(&mut self, signal: u8, interrupted: &Preserved, handler: &Preserved, restorer: u64) {
        let _ = (signal, interrupted, handler, restorer);
    }

    /// A thread was created by the one that runs; `state` is that of the new thread.
    fn thread_started(&mut self, task: Task, state: &State, memory: &AddressSpace) {
        let _ = (task, state, memory);
    }

    /// A process was created by the running thread: a copy of its process, of which only this
    /// thread runs on, with the registers `state`. It uses the same memory if `shares`.
    fn forked(&mut self, child: Task, shares: bool, state: &State) {
        let _ = (child, shares, state);
    }

    /// A process has ended, but not the last one.
    fn process_ended(&mut self, process: u32) {
        let _ = process;
    }

    /// Another thread runs from here on.
    fn switched(&mut self, task: Task, core: &Core) {
        let _ = (task, core);
    }

    /// A tracer has changed the registers of a thread, `state`, or its stack: what was known of its callers
    /// may be wrong. The thread need not be the one that runs.
    fn disturbed(&mut self, task: Task, state: &State) {
        let _ = (task, state);
    }

    /// Whether the running process is observed from here on. While it is not, only its mappings,
    /// threads and children are reported. It becomes observed before it is reported to have started
    /// a program.
    fn observes(&mut self, observed: bool) {
        let _ = observed;
    }

    /// A thread has ended, but not the last one.
    fn thread_ended(&mut self, task: Task) {
        let _ = task;
    }

    /// A system call was answered; `state` is the state that continues.
    fn system_call(&mut self, call: &SystemCall, core: &Core) {
        let _ = (call, core);
    }

    /// The process has ended.
    fn ended(&mut self, outcome: &Outcome) {
        let _ = outcome;
    }
}

/// Observes nothing.
impl ProcessObserver for () {}

/// A report, kept until there is an observer.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Observed(bool),
    Started {
        stack_end: u64,
    },
    Mapped {
        range: Range<u64>,
        permissions: Permissions,
        file: Option<(Rc<[u8]>, u64)>,
        /// Whether it was mapped before, with other permissions.
        again: bool,
    },
    Unmapped(Range<u64>),
    ThreadStarted(Task, Box<State>),
    ThreadEnded(Task),
    Forked(Task, bool, Box<State>),
    ProcessEnded(u32),
    Disturbed(Task, Box<State>),
}

impl Event {
    pub(super) fn tell<O: ProcessObserver>(self, core: &Core, observer: &mut O) {
        match self {
            Event::Observed(observed) => observer.observes(observed),
            Event::Started { stack_end } => observer.started(core, stack_end),
            Event::Mapped {
                range,
                permissions,
                file,
                again,
            } => {
                let file = file.as_ref().map(|(path, offset)| MappedFile {
                    path,
                    offset: *offset,
                });

                // Other permissions for what is mapped already: its content did not change.
                if again {
                    observer.protected(range, permissions, file)
                } else {
                    observer.mapped(range, permissions, file)
                }
            }
            Event::Unmapped(range) => observer.unmapped(range),
            Event::ThreadStarted(task, state) => {
                observer.thread_started(task, &state, &core.memory)
            }
            Event::ThreadEnded(task) => observer.thread_ended(task),
            Event::Forked(child, shares, state) => observer.forked(child, shares, &state),
            Event::ProcessEnded(process) => observer.process_ended(process),
            Event::Disturbed(task, state) => observer.disturbed(task, &state),
        }
    }
}
