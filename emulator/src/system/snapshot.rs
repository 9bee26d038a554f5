//! Takes snapshots of a computer and restores them.

use super::{Passage, Registers, Shadow, Stopped, System};
use crate::address_space::RestoreError;
use crate::machine;

/// The earlier state of a computer: its processor, its memory and its devices. While it is held, pages
/// that change are saved.
#[derive(Debug)]
pub struct SystemSnapshot {
    machine: machine::Snapshot,
    registers: Registers,
    shadow: Shadow,
    nmi_blocked: bool,
    pending_breakpoints: u64,
    passage: Option<Passage>,
    halts: bool,
    ended: Option<Stopped>,
}

impl System {
    /// Takes a snapshot: copies registers and devices now, and pages when they are written.
    pub fn snapshot(&mut self) -> SystemSnapshot {
        SystemSnapshot {
            machine: self.machine.snapshot(),
            registers: self.registers.clone(),
            shadow: self.shadow,
            nmi_blocked: self.nmi_blocked,
            pending_breakpoints: self.pending_breakpoints,
            passage: self.passage,
            halts: self.halts,
            ended: self.ended.clone(),
        }
    }

    /// Restores the computer to a snapshot. This snapshot and older ones stay valid; newer ones can no
    /// longer be restored. What the console has written since is forgotten.
    ///
    /// # Errors
    /// If the snapshot cannot be restored; nothing has changed then.
    pub fn restore(&mut self, snapshot: &SystemSnapshot) -> Result<(), RestoreError> {
        self.machine.restore(&snapshot.machine)?;
        self.registers = snapshot.registers.clone();
        self.shadow = snapshot.shadow;
        self.nmi_blocked = snapshot.nmi_blocked;
        self.pending_breakpoints = snapshot.pending_breakpoints;
        self.passage = snapshot.passage;
        self.halts = snapshot.halts;
        self.ended = snapshot.ended.clone();
        self.set_controls();
        Ok(())
    }
}
