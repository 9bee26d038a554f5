//! Handles the kernel's actions: programs, mappings, signals, system calls.

use super::Checker;
use super::slots::Site;
use crate::verify::claim;
use crate::verify::code::Met;
use crate::verify::places::Bare;
use std::collections::HashMap;
use std::ops::Range;
use unwind_sim_emulator::linux::{MappedFile, ProcessObserver, SystemCall, Task};
use unwind_sim_emulator::state::Preserved;
use unwind_sim_emulator::{Access, AddressSpace, Core, Permissions, State};
use unwind_sim_record::jit::{Jit, has_no_file};
use unwind_sim_record::machine::{cpu, cpu_at};
use unwind_sim_record::shadow::{at_call, process_tracker, thread_tracker, unknown_tracker};
use unwind_sim_unwind::image::{self, Mapping, Stamp};
use unwind_sim_unwind::insn::Insn;
use unwind_sim_unwind::truth::{Stats, Suspended, Tracker};

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
    fn started(&mut self, core: &Core, stack_end: u64) {
        self.end_run();
        let cpu = cpu_at(&core.state, core.state.rip);
        self.earlier = self.earlier.plus(&self.own_stats());
        self.generated
            .end(self.task.process, std::mem::take(&mut self.jit));
        self.others.clear();
        self.task.thread = self.task.process;
        self.tracker = Tracker::root(&cpu, stack_end);
        if !self.observed {
            return;
        }
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
        self.end_run();
        if !self.observed {
            return;
        }

        // New memory is other code than what a JIT compiler had there.
        self.jit.unmapped(&range);

        let mapping = match file {
            Some(file) => {
                self.jit.file_mapped(file.path);
                self.images.mapping(range, permissions, file)
            }
            None => bare(range),
        };

        match permissions.allow(Access::Execute) {
            true => {
                self.places.mapped(&mapping);
                self.jit.mapped(&mapping);
            }
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
        self.end_run();
        if !self.observed {
            return;
        }

        let mapping = match file {
            Some(file) if !has_no_file(&String::from_utf8_lossy(file.path)) => {
                return self.mapped(range, permissions, Some(file));
            }
            Some(file) => self.images.mapping(range.clone(), permissions, file),
            None => bare(range.clone()),
        };

        // Code that was writable for a while stays the same place.
        let is_code = permissions.allow(Access::Execute);
        if is_code && !self.places.is_bare(&mapping.range) {
            self.places.mapped(&mapping);
        }

        self.map(mapping, permissions);
        if self.jit.covers(&range) {
            self.lay(&[range]);
        }
    }

    fn unmapped(&mut self, range: Range<u64>) {
        self.end_run();
        if !self.observed {
            return;
        }
        let before = self.space.stamp();
        self.jit.unmapped(&range);
        self.places.unmapped(&range);
        self.space.unmap(range);
        self.images_changed(before);
    }

    fn thread_started(&mut self, task: Task, state: &State, _: &AddressSpace) {
        self.end_run();
        let tracker = thread_tracker(state);
        self.others.insert(task, (tracker, Vec::new()));
    }

    fn forked(&mut self, child: Task, _: bool, state: &State) {
        self.end_run();
        let process = OtherProcess {
            task: child,
            space: self.space.clone(),
            bare: self.places.bare(),
            met: Met::default(),
            tracker: process_tracker(&self.tracker, self.before.rsp, state),
            sites: self.sites.clone(),
            others: HashMap::new(),
            suspended: self.suspended.clone(),
            jit: self.jit.clone(),
        };
        self.processes.insert(child.process, process);
    }

    fn process_ended(&mut self, process: u32) {
        self.end_run();
        if let Some(ended) = self.processes.remove(&process) {
            self.earlier = self.earlier.plus(&ended.stats());
            self.generated.end(process, ended.jit);
        }
    }

    fn switched(&mut self, task: Task, core: &Core) {
        self.end_run();
        self.hits.clear();
        self.changed = claim::ALL;
        self.tracker.rest(&mut self.suspended);
        self.switch(task, core);
        self.tracker.wake(&mut self.suspended);
    }

    fn disturbed(&mut self, task: Task, state: &State) {
        self.end_run();
        let unknown = unknown_tracker(state);

        // The sites of calls and the frames belong together: both are given up.
        let before = match self.processes.get_mut(&task.process) {
            _ if task == self.task => {
                self.sites.clear();
                self.hits.clear();
                self.changed = claim::ALL;
                self.next_walk = 0;
                Some(std::mem::replace(&mut self.tracker, unknown))
            }
            Some(other) if other.task == task => {
                other.sites.clear();
                Some(std::mem::replace(&mut other.tracker, unknown))
            }
            other => {
                let others = other.map_or(&mut self.others, |other| &mut other.others);
                let known = others.get_mut(&task);
                known.map(|(tracker, sites)| {
                    sites.clear();
                    std::mem::replace(tracker, unknown)
                })
            }
        };

        if let Some(before) = before {
            self.earlier = self.earlier.plus(before.stats());
        }
    }

    fn observes(&mut self, observed: bool) {
        self.end_run();
        self.observed = observed;
    }

    fn thread_ended(&mut self, task: Task) {
        self.end_run();
        if let Some((tracker, _)) = self.others.remove(&task) {
            self.earlier = self.earlier.plus(tracker.stats());
        }
    }

    fn signal(&mut self, _: u8, interrupted: &Preserved, handler: &Preserved, restorer: u64) {
        self.end_run();
        self.tracker
            .signal(&cpu(interrupted), &cpu(handler), restorer);
        self.changed = claim::ALL;
        self.next_walk = 0;
    }

    fn system_call(&mut self, call: &SystemCall, core: &Core) {
        self.end_run();
        // Other threads may have run since.
        self.before = at_call(call);
        self.called(core, call);
        self.wrote_jitdump(call, core);
        self.rax = call.number;
        self.step_slow(core, Insn::Syscall, core.state.rip);
        self.changed = claim::ALL;
    }
}

impl Checker<'_> {
    /// Continues with another thread, perhaps of another process.
    fn switch(&mut self, task: Task, core: &Core) {
        if task.process != self.task.process {
            self.switch_process(task.process);
        }
        if task == self.task {
            return;
        }
        let cpu = cpu_at(&core.state, core.state.rip);
        let next = self.others.remove(&task);
        let next = next.unwrap_or_else(|| (Tracker::middle(&cpu, cpu.rsp), Vec::new()));
        let (tracker, sites) = next;
        let last = (
            std::mem::replace(&mut self.tracker, tracker),
            std::mem::replace(&mut self.sites, sites),
        );
        self.others.insert(self.task, last);
        self.task = task;
    }
}

/// What belongs to a process that does not run.
pub(super) struct OtherProcess {
    /// Its running thread.
    task: Task,
    space: image::AddressSpace,
    bare: Bare,
    met: Met,
    tracker: Tracker,
    sites: Vec<Site>,
    others: HashMap<Task, (Tracker, Vec<Site>)>,
    suspended: Suspended,
    pub(super) jit: Jit,
}

impl OtherProcess {
    /// The statistics of its shadow stacks.
    pub(super) fn stats(&self) -> Stats {
        let others = self.others.values().map(|(tracker, _)| tracker.stats());
        others.fold(*self.tracker.stats(), |sum, stats| sum.plus(stats))
    }
}

impl Checker<'_> {
    /// The statistics of all shadow stacks.
    pub(super) fn stats(&self) -> Stats {
        let processes = self.processes.values().map(OtherProcess::stats);
        let earlier = processes.fold(self.earlier, |sum, stats| sum.plus(&stats));
        earlier.plus(&self.own_stats())
    }

    /// The statistics of the running process's shadow stacks.
    fn own_stats(&self) -> Stats {
        let others = self.others.values().map(|(tracker, _)| tracker.stats());
        others.fold(*self.tracker.stats(), |sum, stats| sum.plus(stats))
    }

    fn switch_process(&mut self, number: u32) {
        let Some(mut other) = self.processes.remove(&number) else {
            return;
        };
        self.forget_stale();
        std::mem::swap(&mut self.task, &mut other.task);
        std::mem::swap(&mut self.space, &mut other.space);
        std::mem::swap(&mut self.code.met, &mut other.met);
        std::mem::swap(&mut self.tracker, &mut other.tracker);
        std::mem::swap(&mut self.sites, &mut other.sites);
        std::mem::swap(&mut self.others, &mut other.others);
        std::mem::swap(&mut self.suspended, &mut other.suspended);
        std::mem::swap(&mut self.jit, &mut other.jit);
        self.places.exchange(&mut other.bare);
        self.processes.insert(other.task.process, other);
    }

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

    /// Notes that looked-up rows are no longer those of the images. A registered table changes them
    /// in the middle of a block, the rest of which is still needed.
    pub(super) fn images_changed(&mut self, before: Stamp) {
        if self.space.stamp() != before {
            self.is_stale = true;
            self.changed = claim::ALL;
        }
    }

    /// Forgets rows that are no longer those of the images.
    #[inline]
    pub(super) fn forget_stale(&mut self) {
        if std::mem::take(&mut self.is_stale) {
            self.code.clear();
            self.changed = claim::ALL;
        }
    }
}
