//! Snapshots of a process: taking one, and going back to it.
//!
//! Memory is kept page by page when it is written ([`crate::address_space`]). What the kernel knows
//! changes only when it is asked or sends a signal: a snapshot copies it if it has changed since
//! the last one, and shares that copy else.

use super::clock::Clock;
use super::files;
use super::identity::Settings;
use super::layout::Layout;
use super::observer::Event;
use super::outcome::Outcome;
use super::process::Process;
use super::signals::Signals;
use crate::address_space::RestoreError;
use crate::linux::calls::RESOURCES;
use crate::machine::{self, Machine};
use std::rc::Rc;

/// Programs before the last `execve` that are kept for snapshots of them.
const FORMER_MAX: usize = 4;

/// A process as it was. While it is held, what changes is kept as it was then.
///
/// Not taken back: what was written to files of the host ([`super::Options::allow_write`]), and
/// what was read from or written to the streams of this process ([`super::Input::Inherit`],
/// [`super::Output::Inherit`]).
#[derive(Debug)]
pub struct Snapshot {
    machine: machine::Snapshot,
    program: u64,
    kernel: Rc<Kernel>,
    executed: u64,
}

impl Snapshot {
    /// Instructions that were executed by then.
    pub fn executed(&self) -> u64 {
        self.executed
    }
}

/// What the kernel knew.
#[derive(Debug)]
pub(super) struct Kernel {
    files: files::Saved,
    layout: Layout,
    signals: Signals,
    clock: Clock,
    resources: [[u64; 2]; RESOURCES],
    args: Rc<Vec<Vec<u8>>>,
    env: Rc<Vec<Vec<u8>>>,
    settings: Settings,
    name: Vec<u8>,
    executed_before: u64,
    events: Vec<Event>,
    outcome: Option<Outcome>,
    /// How many there were.
    notices: usize,
}

/// Which program runs, and those before it of which there are snapshots.
#[derive(Debug, Default)]
pub(super) struct Programs {
    /// The number of the one that runs; no two have the same.
    current: u64,
    /// The number that the next one gets.
    next: u64,
    /// Those that `execve` replaced, the oldest first.
    former: Vec<(u64, Machine)>,
    /// Programs below this number were dropped, if they are not kept.
    dropped_below: u64,
}

impl Programs {
    /// A program was replaced.
    pub(super) fn replaced(&mut self, mut machine: Machine) {
        self.forget_released();
        if machine.state.memory.has_snapshots() {
            self.former.push((self.current, machine));
        } else {
            self.dropped_below = self.current + 1;
        }
        if self.former.len() > FORMER_MAX {
            self.dropped_below = self.former.remove(0).0 + 1;
        }
        self.next += 1;
        self.current = self.next;
    }

    /// Drops those of which there are no snapshots any more.
    fn forget_released(&mut self) {
        self.former.retain_mut(|(number, machine)| {
            let is_wanted = machine.state.memory.has_snapshots();
            if !is_wanted {
                self.dropped_below = self.dropped_below.max(*number + 1);
            }
            is_wanted
        });
    }

    /// Makes the machine what it was, or that of a former program.
    fn restore(&mut self, machine: &mut Machine, snapshot: &Snapshot) -> Result<(), RestoreError> {
        if snapshot.program == self.current {
            return machine.restore(&snapshot.machine);
        }
        let is_it = |(number, _): &(u64, Machine)| *number == snapshot.program;
        let Some(index) = self.former.iter().position(is_it) else {
            return Err(match snapshot.program < self.dropped_below {
                true => RestoreError::Dropped,
                false => RestoreError::Undone,
            });
        };
        self.former[index].1.restore(&snapshot.machine)?;
        self.former.truncate(index + 1);
        if let Some((number, former)) = self.former.pop() {
            *machine = former;
            self.current = number;
        }
        Ok(())
    }
}

impl Process {
    /// Remembers the process: registers are copied, pages when they are written, what the kernel
    /// knows if it was asked since the last snapshot.
    pub fn snapshot(&mut self) -> Snapshot {
        self.programs.forget_released();
        let kernel = match &self.saved {
            Some(kernel) => kernel.clone(),
            None => Rc::new(self.kernel()),
        };
        self.saved = Some(kernel.clone());
        Snapshot {
            machine: self.machine.snapshot(),
            program: self.programs.current,
            kernel,
            executed: self.executed(),
        }
    }

    /// Makes the process what it was. The snapshot stays, and so do older ones; there is no way
    /// to newer ones any more.
    ///
    /// # Errors
    /// If there is no way back; nothing has changed then.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), RestoreError> {
        self.programs.restore(&mut self.machine, snapshot)?;
        let is_same = |saved: &Rc<Kernel>| Rc::ptr_eq(saved, &snapshot.kernel);
        if !self.saved.as_ref().is_some_and(is_same) {
            self.set_kernel(&snapshot.kernel);
            self.saved = Some(snapshot.kernel.clone());
        }
        self.clock.set(self.executed());
        Ok(())
    }

    fn kernel(&self) -> Kernel {
        Kernel {
            files: self.files.save(),
            layout: self.layout.clone(),
            signals: self.signals.clone(),
            clock: self.clock.clone(),
            resources: self.resources,
            args: self.args.clone(),
            env: self.env.clone(),
            settings: self.settings,
            name: self.name.clone(),
            executed_before: self.executed_before,
            events: self.events.clone(),
            outcome: self.outcome.clone(),
            notices: self.notices.len(),
        }
    }

    fn set_kernel(&mut self, from: &Kernel) {
        self.files.restore(&from.files);
        self.layout = from.layout.clone();
        self.signals = from.signals.clone();
        self.clock = from.clock.clone();
        self.resources = from.resources;
        self.args = from.args.clone();
        self.env = from.env.clone();
        self.settings = from.settings;
        self.name.clone_from(&from.name);
        self.executed_before = from.executed_before;
        self.events.clone_from(&from.events);
        self.outcome.clone_from(&from.outcome);
        self.notices.truncate(from.notices);
    }
}

/// A second process that goes on from here by itself; what both write to files and streams of the
/// host, they write there. Snapshots are of the original only.
impl Clone for Process {
    fn clone(&self) -> Self {
        Process {
            machine: self.machine.clone(),
            files: self.files.clone(),
            layout: self.layout.clone(),
            signals: self.signals.clone(),
            clock: self.clock.clone(),
            limits: self.limits,
            resources: self.resources,
            args: self.args.clone(),
            env: self.env.clone(),
            settings: self.settings,
            name: self.name.clone(),
            executed_before: self.executed_before,
            events: self.events.clone(),
            outcome: self.outcome.clone(),
            notices: self.notices.clone(),
            saved: None,
            programs: Programs::default(),
        }
    }
}
