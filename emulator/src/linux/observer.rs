//! What a run tells besides instructions.

use crate::address_space::Permissions;
use crate::machine::Observer;
use crate::state::State;
use crate::stop::Exception;
use std::ops::Range;
use std::rc::Rc;
use unwind_sim_unwind::truth::Cpu;

use super::outcome::Outcome;

/// The file behind a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MappedFile<'a> {
    /// Its path below the root.
    pub path: &'a [u8],
    /// Where in it the mapping begins, bytes.
    pub offset: u64,
}

/// A system call that was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SystemCall {
    /// rax.
    pub number: u64,
    /// Its name; empty if there is none.
    pub name: &'static str,
    /// rdi, rsi, rdx, r10, r8, r9.
    pub args: [u64; 6],
    /// What rax then is.
    pub result: u64,
    /// Does the program go on: it has not exited, no signal is about to kill it, and it does not
    /// wait for ever?
    pub returns: bool,
    /// The state before, rip being behind the `syscall`.
    pub before: Cpu,
}

/// Is told of what the kernel does. [`Observer::after`] of a `syscall` comes before it is
/// answered; mappings that it made, [`ProcessObserver::system_call`] and then signals follow.
pub trait ProcessObserver: Observer {
    /// A program begins, the stack ending at `stack_end`: the first one, or by `execve` in place
    /// of all that was mapped. Its mappings follow.
    fn started(&mut self, state: &State, stack_end: u64) {
        let _ = (state, stack_end);
    }

    /// Memory was mapped in place of what was there.
    fn mapped(
        &mut self,
        range: Range<u64>,
        permissions: Permissions,
        file: Option<MappedFile<'_>>,
    ) {
        let _ = (range, permissions, file);
    }

    /// The permissions of what is mapped there were changed.
    fn protected(
        &mut self,
        range: Range<u64>,
        permissions: Permissions,
        file: Option<MappedFile<'_>>,
    ) {
        self.mapped(range, permissions, file);
    }

    /// Nothing is mapped there any more.
    fn unmapped(&mut self, range: Range<u64>) {
        let _ = range;
    }

    /// The processor raised something, which the kernel is about to hear of. `state` is as
    /// [`crate::Machine::run`] left it.
    fn exception(&mut self, exception: Exception, state: &State) {
        let _ = (exception, state);
    }

    /// A handler is about to run: `interrupted` is what its frame holds, `handler` the state at
    /// its first instruction. `restorer` is where it will return to.
    fn signal(&mut self, signal: u8, interrupted: &Cpu, handler: &Cpu, restorer: u64) {
        let _ = (signal, interrupted, handler, restorer);
    }

    /// A system call was answered; `state` is what goes on.
    fn system_call(&mut self, call: &SystemCall, state: &State) {
        let _ = (call, state);
    }

    /// It ended.
    fn ended(&mut self, outcome: &Outcome) {
        let _ = outcome;
    }
}

/// Wants to know nothing.
impl ProcessObserver for () {}

/// What is to be told, kept until there is somebody to tell.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Started {
        stack_end: u64,
    },
    Mapped {
        range: Range<u64>,
        permissions: Permissions,
        file: Option<(Rc<[u8]>, u64)>,
        /// It was there before, with other permissions.
        again: bool,
    },
    Unmapped(Range<u64>),
}

impl Event {
    pub(super) fn tell<O: ProcessObserver>(self, state: &State, observer: &mut O) {
        match self {
            Event::Started { stack_end } => observer.started(state, stack_end),
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
                match again {
                    true => observer.protected(range, permissions, file),
                    false => observer.mapped(range, permissions, file),
                }
            }
            Event::Unmapped(range) => observer.unmapped(range),
        }
    }
}
