//! Handles the kernel's actions: programs, mappings, signals, system calls.

use super::Checker;
use crate::verify::claim;
use std::ops::Range;
use unwind_sim_emulator::linux::{MappedFile, ProcessObserver, SystemCall};
use unwind_sim_emulator::{Access, Permissions, State};
use unwind_sim_unwind::image::{Mapping, Stamp};
use unwind_sim_unwind::insn::Insn;
use unwind_sim_unwind::truth::{Cpu, Suspended, Tracker};

/// A mapping without a file.
fn bare(range: Range<u64>) -> Mapping {
    Mapping {
        range,
        bias: 0,
        image: None,
        name: String::new(),
    }
}

impl ProcessObserver for Checker<'_> {
    fn started(&mut self, state: &State, stack_end: u64) {
        let cpu = state.cpu_at(state.rip);
        self.earlier = self.earlier.plus(self.tracker.stats());
        self.tracker = Tracker::root(&cpu, stack_end);
        self.suspended = Suspended::new();
        self.hits.clear();
        self.sites.clear();
        self.space.clear();
        self.places.clear();
        self.code.clear();
        self.changed = claim::ALL;
    }

    fn mapped(
        &mut self,
        range: Range<u64>,
        permissions: Permissions,
        file: Option<MappedFile<'_>>,
    ) {
        let mapping = match file {
            Some(file) => self.images.mapping(range, permissions, file),
            None => bare(range),
        };
        match permissions.allow(Access::Execute) {
            true => self.places.mapped(&mapping),
            false => self.places.unmapped(&mapping.range),
        }
        self.map(mapping, permissions);
    }

    fn protected(
        &mut self,
        range: Range<u64>,
        permissions: Permissions,
        file: Option<MappedFile<'_>>,
    ) {
        match file {
            Some(_) => self.mapped(range, permissions, file),
            None => {
                let mapping = bare(range);
                let is_code = permissions.allow(Access::Execute);
                if is_code && !self.places.is_bare(&mapping.range) {
                    self.places.mapped(&mapping);
                }
                self.map(mapping, permissions);
            }
        }
    }

    fn unmapped(&mut self, range: Range<u64>) {
        let before = self.space.stamp();
        self.places.unmapped(&range);
        self.space.unmap(range);
        self.images_changed(before);
    }

    fn signal(&mut self, _: u8, interrupted: &Cpu, handler: &Cpu, restorer: u64) {
        self.tracker.signal(interrupted, handler, restorer);
        self.changed = claim::ALL;
        self.next_walk = 0;
    }

    fn system_call(&mut self, call: &SystemCall, state: &State) {
        self.called(state, call);
        self.rax = call.number;
        self.step_slow(state, Insn::Syscall, state.rip);
        self.changed = claim::ALL;
    }
}

impl Checker<'_> {
    /// Records a mapping. Memory without a file is code if it is executable.
    pub(super) fn map(&mut self, mapping: Mapping, permissions: Permissions) {
        let before = self.space.stamp();
        if mapping.name.is_empty() && !permissions.allow(Access::Execute) {
            self.space.unmap(mapping.range);
        } else {
            self.space.map(mapping);
        }
        self.images_changed(before);
    }

    /// Forgets looked-up rows if the images have changed.
    fn images_changed(&mut self, before: Stamp) {
        if self.space.stamp() != before {
            self.code.clear();
            self.changed = claim::ALL;
        }
    }
}
