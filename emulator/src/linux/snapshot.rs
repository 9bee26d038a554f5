//! Takes snapshots of a run and restores them.
//!
//! Pages of memory are saved when they are written ([`crate::address_space`]). The kernel's state
//! changes only when the kernel is called, sends a signal or lets another thread run: a snapshot
//! copies it if it has changed since the last snapshot, and otherwise shares that copy.

use super::kernel::Kernel;
use super::system::KernelState;
use crate::address_space::RestoreError;
use crate::machine;
use std::rc::Rc;

/// The earlier state of a run. While the snapshot is held, what changes is saved.
///
/// Not undone: writes to files of the host ([`super::ProcessOptions::allow_write`]), and what was
/// read from or written to the streams of this process ([`super::Input::Inherit`],
/// [`super::Output::Inherit`]).
#[derive(Debug)]
pub struct Snapshot {
    machine: machine::Snapshot,
    kernel: Rc<KernelState>,
}

impl Snapshot {
    /// The number of instructions executed before the snapshot.
    pub fn executed(&self) -> u64 {
        self.machine.executed()
    }
}

impl Kernel {
    /// Takes a snapshot: copies the registers, pages when they are written, and the kernel's state
    /// if it has changed since the last snapshot.
    pub fn snapshot(&mut self) -> Snapshot {
        let kernel = match &self.saved {
            Some(kernel) => kernel.clone(),
            None => Rc::new(self.kernel()),
        };
        self.saved = Some(kernel.clone());
        Snapshot {
            machine: self.machine.snapshot(),
            kernel,
        }
    }

    /// Restores the run to a snapshot. This snapshot and older ones stay valid; newer ones can no
    /// longer be restored.
    ///
    /// # Errors
    /// If the snapshot cannot be restored; nothing has changed then.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), RestoreError> {
        self.machine.restore(&snapshot.machine)?;
        let is_same = |saved: &Rc<KernelState>| Rc::ptr_eq(saved, &snapshot.kernel);
        if !self.saved.as_ref().is_some_and(is_same) {
            self.set_kernel(&snapshot.kernel);
            self.saved = Some(snapshot.kernel.clone());
        }
        self.clock.set(self.executed());
        Ok(())
    }

    fn kernel(&self) -> KernelState {
        let mut objects = self.objects.copy();
        let files = self.files.save(objects.others());
        KernelState {
            files,
            objects,
            process: self.process.clone(),
            processes: self.processes.clone(),
            system: self.system.clone(),
            clock: self.clock.clone(),
            outcome: self.outcome.clone(),
            notices: self.notices.len(),
        }
    }

    fn set_kernel(&mut self, from: &KernelState) {
        self.objects = from.objects.copy();
        let others = self.objects.others();
        self.files.restore(&from.files, others);
        self.processes.clone_from(&from.processes);
        self.process = from.process.clone();
        self.system.clone_from(&from.system);
        self.clock = from.clock.clone();
        self.outcome.clone_from(&from.outcome);
        self.notices.truncate(from.notices);
    }
}

/// A second run that continues from the same state. Both write to the same files and streams of the
/// host. Snapshots belong to the original only.
impl Clone for Kernel {
    fn clone(&self) -> Self {
        let mut objects = self.objects.copy();
        let files = self.files.copy(objects.others());
        Kernel {
            deadline: self.deadline,
            machine: self.machine.clone(),
            files,
            objects,
            process: self.process.clone(),
            processes: self.processes.clone(),
            system: self.system.clone(),
            clock: self.clock.clone(),
            limits: self.limits,
            observed: self.observed.clone(),
            outcome: self.outcome.clone(),
            notices: self.notices.clone(),
            saved: None,
        }
    }
}
