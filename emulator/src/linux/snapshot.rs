//! Takes snapshots of a process and restores them.
//!
//! Pages of memory are saved when they are written ([`crate::address_space`]). The kernel's state
//! changes only when the kernel is called or sends a signal: a snapshot copies it if it has changed
//! since the last snapshot, and otherwise shares that copy.

use super::history::{KernelState, Programs};
use super::process::Process;
use crate::address_space::RestoreError;
use crate::machine;
use std::rc::Rc;

/// The earlier state of a process. While the snapshot is held, what changes is saved.
///
/// Not undone: writes to files of the host ([`super::ProcessOptions::allow_write`]), and what was
/// read from or written to the streams of this process ([`super::Input::Inherit`],
/// [`super::Output::Inherit`]).
#[derive(Debug)]
pub struct Snapshot {
    machine: machine::Snapshot,
    program: u64,
    kernel: Rc<KernelState>,
    executed: u64,
}

impl Snapshot {
    /// The number of instructions executed before the snapshot.
    pub fn executed(&self) -> u64 {
        self.executed
    }
}

impl Process {
    /// Takes a snapshot: copies the registers, pages when they are written, and the kernel's state
    /// if it has changed since the last snapshot.
    pub fn snapshot(&mut self) -> Snapshot {
        self.programs.forget_released();
        let kernel = match &self.saved {
            Some(kernel) => kernel.clone(),
            None => Rc::new(self.kernel()),
        };
        self.saved = Some(kernel.clone());
        Snapshot {
            machine: self.machine.snapshot(),
            program: self.programs.current(),
            kernel,
            executed: self.executed(),
        }
    }

    /// Restores the process to a snapshot. This snapshot and older ones stay valid; newer ones can
    /// no longer be restored.
    ///
    /// # Errors
    /// If the snapshot cannot be restored; nothing has changed then.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), RestoreError> {
        self.programs
            .restore(&mut self.machine, snapshot.program, &snapshot.machine)?;
        let is_same = |saved: &Rc<KernelState>| Rc::ptr_eq(saved, &snapshot.kernel);
        if !self.saved.as_ref().is_some_and(is_same) {
            self.set_kernel(&snapshot.kernel);
            self.saved = Some(snapshot.kernel.clone());
        }
        self.clock.set(self.executed());
        Ok(())
    }

    fn kernel(&self) -> KernelState {
        KernelState {
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

    fn set_kernel(&mut self, from: &KernelState) {
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

/// A second process that continues from the same state. Both write to the same files and streams of
/// the host. Snapshots belong to the original only.
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
