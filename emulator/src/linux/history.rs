//! Kept for snapshots of a process: the kernel's state, and programs that `execve` replaced.

use super::clock::Clock;
use super::files;
use super::identity::Settings;
use super::layout::Layout;
use super::observer::Event;
use super::outcome::Outcome;
use super::resources::RESOURCES;
use super::signals::Signals;
use crate::address_space::RestoreError;
use crate::machine::{self, Machine};
use std::rc::Rc;

/// Programs replaced by `execve` that are kept for their snapshots.
const FORMER_MAX: usize = 4;

/// What the kernel knows of a process.
#[derive(Debug)]
pub(super) struct KernelState {
    pub(super) files: files::Saved,
    pub(super) layout: Layout,
    pub(super) signals: Signals,
    pub(super) clock: Clock,
    pub(super) resources: [[u64; 2]; RESOURCES],
    pub(super) args: Rc<Vec<Vec<u8>>>,
    pub(super) env: Rc<Vec<Vec<u8>>>,
    pub(super) settings: Settings,
    pub(super) name: Vec<u8>,
    pub(super) executed_before: u64,
    pub(super) events: Vec<Event>,
    pub(super) outcome: Option<Outcome>,
    /// Number of notices.
    pub(super) notices: usize,
}

/// The running program, and replaced programs that have snapshots.
#[derive(Debug, Default)]
pub(super) struct Programs {
    /// The number of the running program; numbers are unique.
    current: u64,
    /// The number of the next program.
    next: u64,
    /// Programs that `execve` replaced, the oldest first.
    former: Vec<(u64, Machine)>,
    /// Programs below this number that are no longer kept were dropped.
    dropped_below: u64,
}

impl Programs {
    /// The number of the program that runs.
    pub(super) fn current(&self) -> u64 {
        self.current
    }

    /// Keeps a replaced program if it has snapshots.
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

    /// Drops programs that have no more snapshots.
    pub(super) fn forget_released(&mut self) {
        self.former.retain_mut(|(number, machine)| {
            let is_wanted = machine.state.memory.has_snapshots();
            if !is_wanted {
                self.dropped_below = self.dropped_below.max(*number + 1);
            }
            is_wanted
        });
    }

    /// Restores the machine to a snapshot of this program or of a former one.
    pub(super) fn restore(
        &mut self,
        machine: &mut Machine,
        program: u64,
        snapshot: &machine::Snapshot,
    ) -> Result<(), RestoreError> {
        if program == self.current {
            return machine.restore(snapshot);
        }
        let is_it = |(number, _): &(u64, Machine)| *number == program;
        let Some(index) = self.former.iter().position(is_it) else {
            return Err(match program < self.dropped_below {
                true => RestoreError::Dropped,
                false => RestoreError::Undone,
            });
        };
        self.former[index].1.restore(snapshot)?;
        self.former.truncate(index + 1);
        if let Some((number, former)) = self.former.pop() {
            *machine = former;
            self.current = number;
        }
        Ok(())
    }
}
