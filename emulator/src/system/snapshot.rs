//! Takes snapshots of a computer and restores them, and goes from one state of a run to another.

use super::{Passage, Registers, Shadow, Stopped, System};
use crate::address_space::{Difference, RestoreError, SavedPaging};
use crate::machine;
use crate::state::State;

/// The earlier state of a computer: its processor, its memory and its devices. While it is held, pages
/// that change are saved.
#[derive(Debug)]
pub struct SystemSnapshot {
    machine: machine::Snapshot,
    privileged: Privileged,
}

/// A state of a computer without its memory. What of memory differs between two states is a
/// [`Difference`].
#[derive(Clone, Debug)]
pub struct SystemState {
    state: State,
    executed: u64,
    idle: u64,
    paging: Option<SavedPaging>,
    privileged: Privileged,
}

/// What a processor in system mode has beside the registers of a program.
#[derive(Clone, Debug)]
struct Privileged {
    registers: Registers,
    shadow: Shadow,
    nmi_blocked: bool,
    pending_breakpoints: u64,
    passage: Option<Passage>,
    halts: bool,
    ended: Option<Stopped>,
}

impl SystemState {
    /// Instructions executed before it.
    pub fn executed(&self) -> u64 {
        self.executed
    }
}

impl System {
    /// Takes a snapshot: copies registers and devices now, and pages when they are written.
    pub fn snapshot(&mut self) -> SystemSnapshot {
        SystemSnapshot {
            machine: self.machine.snapshot(),
            privileged: self.privileged(),
        }
    }

    /// Restores the computer to a snapshot. This snapshot and older ones stay valid; newer ones can no
    /// longer be restored. What the console has written since is forgotten.
    ///
    /// # Errors
    /// If the snapshot cannot be restored; nothing has changed then.
    pub fn restore(&mut self, snapshot: &SystemSnapshot) -> Result<(), RestoreError> {
        self.machine.restore(&snapshot.machine)?;
        self.set_privileged(&snapshot.privileged);
        Ok(())
    }

    /// What of memory has changed since a snapshot, the newest one.
    ///
    /// # Errors
    /// If the snapshot was dropped, or is not the newest one.
    pub fn difference(&mut self, since: &SystemSnapshot) -> Result<Difference, RestoreError> {
        since.machine.difference(&mut self.machine)
    }

    /// The state without memory.
    pub fn state(&self) -> SystemState {
        SystemState {
            state: self.machine.core.state.clone(),
            executed: self.executed(),
            idle: self.machine.idle(),
            paging: self.machine.core.memory.saved_paging(),
            privileged: self.privileged(),
        }
    }

    /// Goes to `state` of the same run, to which `differences` lead, in this order, from where it is.
    pub fn go_to<'a>(
        &mut self,
        state: &SystemState,
        differences: impl Iterator<Item = &'a Difference>,
    ) {
        if let Some(paging) = &state.paging {
            self.machine.core.memory.apply(differences, paging);
        }
        self.machine.set_state(&state.state, state.executed);
        self.machine.set_idle(state.idle);
        self.set_privileged(&state.privileged);
    }

    fn privileged(&self) -> Privileged {
        Privileged {
            registers: self.registers.clone(),
            shadow: self.shadow,
            nmi_blocked: self.nmi_blocked,
            pending_breakpoints: self.pending_breakpoints,
            passage: self.passage,
            halts: self.halts,
            ended: self.ended.clone(),
        }
    }

    fn set_privileged(&mut self, saved: &Privileged) {
        self.registers = saved.registers.clone();
        self.shadow = saved.shadow;
        self.nmi_blocked = saved.nmi_blocked;
        self.pending_breakpoints = saved.pending_breakpoints;
        self.passage = saved.passage;
        self.halts = saved.halts;
        self.ended = saved.ended.clone();
        self.set_controls();
    }
}
