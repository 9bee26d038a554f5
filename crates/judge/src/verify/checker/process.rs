//! Handles the kernel's actions: programs, mappings, signals, system calls.

use super::Checker;
use super::mapped::ParkedMap;
use super::stacks::Stacks;
use crate::verify::code::Met;
use std::collections::HashMap;
use std::ops::Range;
use unwind_sim_emulator::linux::{MappedFile, ProcessObserver, SystemCall, Task};
use unwind_sim_emulator::state::Preserved;
use unwind_sim_emulator::{AddressSpace, Core, Permissions, State};
use unwind_sim_record::jit::Jit;
use unwind_sim_record::machine::{cpu, cpu_at};
use unwind_sim_record::shadow::{at_call, thread_tracker, unknown_tracker};
use unwind_sim_unwind::insn::Insn;
use unwind_sim_unwind::truth::Stats;

/// The processes of a run but the running one, which is in place in the checker.
///
/// `earlier` has the statistics of every shadow stack that is no more, so that what the existing ones
/// have and it together are those of the whole run.
pub(super) struct Processes {
    /// By number.
    parked: HashMap<u32, Parked>,
    pub(super) earlier: Stats,
    /// Whether the running process is checked. What is mapped in another one is not noted.
    is_observed: bool,
}

/// What belongs to a process that does not run.
struct Parked {
    stacks: Stacks,
    map: ParkedMap,
    met: Met,
}

impl Processes {
    /// There is only the first process.
    pub(super) fn new() -> Processes {
        Processes {
            parked: HashMap::new(),
            earlier: Stats::default(),
            is_observed: true,
        }
    }

    /// Adds the statistics of a shadow stack that is no more.
    pub(super) fn add_earlier(&mut self, stats: Option<Stats>) {
        if let Some(stats) = stats {
            self.earlier = self.earlier.plus(&stats);
        }
    }

    /// The statistics of all shadow stacks but those of the running process.
    pub(super) fn stats(&self) -> Stats {
        let all = self.parked.values().map(|parked| parked.stacks.stats());
        all.fold(self.earlier, |sum, stats| sum.plus(&stats))
    }

    /// What each process has told of generated code, by its number.
    pub(super) fn jits(&self) -> impl Iterator<Item = (u32, &Jit)> {
        let all = self.parked.iter();
        all.map(|(&number, parked)| (number, &parked.map.jit))
    }
}

impl ProcessObserver for Checker<'_> {
    fn started(&mut self, core: &Core, stack_end: u64) {
        self.end_run();
        let cpu = cpu_at(&core.state, core.state.rip);
        self.processes.add_earlier(Some(self.stacks.stats()));
        let jit = std::mem::take(&mut self.mapped.jit);
        self.generated.end(self.stacks.task.process, jit);
        self.stacks.started(&cpu, stack_end);
        if !self.processes.is_observed {
            return;
        }
        self.stacks.clear();
        self.stores.forget();
        self.mapped.clear();
        self.code.clear();
        self.outcome.change_all();
    }

    fn mapped(
        &mut self,
        range: Range<u64>,
        permissions: Permissions,
        file: Option<MappedFile<'_>>,
    ) {
        self.end_run();
        if self.processes.is_observed && self.mapped.add(range, permissions, file) {
            self.outcome.change_all();
        }
    }

    fn protected(
        &mut self,
        range: Range<u64>,
        permissions: Permissions,
        file: Option<MappedFile<'_>>,
    ) {
        self.end_run();
        if self.processes.is_observed && self.mapped.protect(range, permissions, file) {
            self.outcome.change_all();
        }
    }

    fn unmapped(&mut self, range: Range<u64>) {
        self.end_run();
        if self.processes.is_observed && self.mapped.remove(range) {
            self.outcome.change_all();
        }
    }

    fn thread_started(&mut self, task: Task, state: &State, _: &AddressSpace) {
        self.end_run();
        self.stacks.add(task, thread_tracker(state));
    }

    fn forked(&mut self, child: Task, _: bool, state: &State) {
        self.end_run();
        let process = Parked {
            stacks: self.stacks.fork(child, self.current.before.rsp, state),
            map: self.mapped.fork(),
            met: Met::default(),
        };
        self.processes.parked.insert(child.process, process);
    }

    fn process_ended(&mut self, process: u32) {
        self.end_run();
        if let Some(ended) = self.processes.parked.remove(&process) {
            self.processes.add_earlier(Some(ended.stacks.stats()));
            self.generated.end(process, ended.map.jit);
        }
    }

    fn switched(&mut self, task: Task, core: &Core) {
        self.end_run();
        self.stores.forget();
        self.outcome.change_all();
        self.stacks.rest();
        if task.process != self.stacks.task.process {
            self.switch_process(task.process);
        }
        self.stacks
            .switch(task, &cpu_at(&core.state, core.state.rip));
        self.stacks.wake();
    }

    fn disturbed(&mut self, task: Task, state: &State) {
        self.end_run();
        if task == self.stacks.task {
            self.stores.forget();
            self.outcome.change_all();
            self.walks.take_next();
        }
        let stacks = match self.processes.parked.get_mut(&task.process) {
            Some(parked) if task != self.stacks.task => &mut parked.stacks,
            _ => &mut self.stacks,
        };
        let before = stacks.disturb(task, unknown_tracker(state));
        self.processes.add_earlier(before);
    }

    fn observes(&mut self, observed: bool) {
        self.end_run();
        self.processes.is_observed = observed;
    }

    fn thread_ended(&mut self, task: Task) {
        self.end_run();
        let ended = self.stacks.remove(task);
        self.processes.add_earlier(ended);
    }

    fn signal(&mut self, _: u8, interrupted: &Preserved, handler: &Preserved, restorer: u64) {
        self.end_run();
        self.stacks
            .tracker
            .signal(&cpu(interrupted), &cpu(handler), restorer);
        self.outcome.change_all();
        self.walks.take_next();
    }

    fn system_call(&mut self, call: &SystemCall, core: &Core) {
        self.end_run();
        // Other threads may have run since.
        self.current.before = at_call(call);
        self.called(core, call);
        if self.mapped.called(call, &core.memory) {
            self.outcome.change_all();
        }
        self.current.rax = call.number;
        self.step_slow(core, Insn::Syscall, core.state.rip);
        self.outcome.change_all();
    }
}

impl Checker<'_> {
    /// Continues with another process, with the thread of it that ran last.
    fn switch_process(&mut self, number: u32) {
        let Some(mut other) = self.processes.parked.remove(&number) else {
            return;
        };
        self.forget_stale();
        std::mem::swap(&mut self.stacks, &mut other.stacks);
        std::mem::swap(&mut self.code.met, &mut other.met);
        self.mapped.exchange(&mut other.map);
        self.processes
            .parked
            .insert(other.stacks.task.process, other);
    }

    /// Forgets rows that are no longer those of the images.
    #[inline]
    pub(super) fn forget_stale(&mut self) {
        if self.mapped.take_stale() {
            self.code.clear();
            self.outcome.change_all();
        }
    }
}
