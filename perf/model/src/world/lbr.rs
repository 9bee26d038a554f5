//! Branch records in the world: the calls and returns of user code on the way from one stack to
//! the next, and what the kernel does with each CPU's ring when tasks and events come and go.
//!
//! The ring and the kernel's part are in [`unwind_sim_perf_lbr`]; each is asked here, if any event
//! has branch records.

use super::CpuTask;
use crate::log::Fact;
use crate::mutant::Mutant;
use crate::record::Branches;
use crate::setup::{CPUS_MAX, EventSetup, Setup};
use crate::stack::{StackId, StackSource};
use unwind_sim_perf_data::BranchEntry;
use unwind_sim_perf_lbr::{self as lbr, Branch, Dying, Kernel, Ledger, Mutation, Saving, Step};

/// Size of a call instruction, bytes: the call is this far before its return address.
const CALL_BYTES: u64 = 5;
/// The most calls of a stack that are looked at, from the innermost on. Calls above those are taken
/// to be left and made again with them.
const CALLS_MAX: usize = 1024;

/// A branch as samples have it.
fn entry(branch: Branch) -> BranchEntry {
    BranchEntry {
        from: branch.from,
        to: branch.to,
        flags: 0,
    }
}

/// The call that made frame `index` of a stack, the innermost being 0: its address and its target.
fn call(source: &dyn StackSource, stack: StackId, index: usize) -> (u64, u64) {
    let from = source.frame(stack, index + 1);
    // Functions are assumed to start at multiples of 16.
    let to = source.frame(stack, index) & !0xf;
    // But not right after their call: call-stack mode ignores such a call.
    let to = if to == from {
        to.wrapping_sub(0x10)
    } else {
        to
    };
    (from.wrapping_sub(CALL_BYTES), to)
}

/// The number of calls of a stack that are looked at.
fn calls(source: &dyn StackSource, stack: StackId) -> usize {
    source.depth(stack).saturating_sub(1).min(CALLS_MAX)
}

/// The processors' branch records and what the kernel keeps of them.
pub(super) struct Lbr {
    /// `None` if no event has branch records.
    kernel: Option<Kernel>,
}

impl Lbr {
    pub(super) fn new(setup: &Setup, events: &[EventSetup]) -> Self {
        let is_used = events.iter().any(|event| event.branch_stack);
        let mutation = setup.mutant.and_then(Mutant::of_branches);
        let kernel = is_used.then(|| {
            let mut kernel = Kernel::new(
                usize::from(setup.cpus.clamp(1, CPUS_MAX)),
                setup.lbr_depth,
                setup.lbr_storage,
                setup.lbr_layout,
                mutation.unwrap_or(Mutation::RestoreForgets),
            );
            kernel.keep_steps();
            for event in events.iter().filter(|event| !event.is_opened_later) {
                if event.branch_stack && event.tid.is_none() {
                    kernel.attach_system(event.cgroup);
                }
            }
            kernel
        });
        Self { kernel }
    }

    /// The steps of the kernel since the last call, each with its CPU, if `cpu` caused them.
    pub(super) fn steps(&mut self, cpu: usize) -> impl Iterator<Item = (usize, Step)> + use<> {
        let steps = self.kernel.as_mut().map(Kernel::steps);
        steps.into_iter().flatten().map(move |step| match step {
            Step::Wiped { cpu } => (cpu, step),
            _ => (cpu, step),
        })
    }

    pub(super) fn memory(&self) -> Option<Ledger> {
        self.kernel.as_ref().map(Kernel::ledger)
    }

    /// A task exists from the start, with this number of its own events.
    pub(super) fn start(&mut self, tid: i32, cgroup: Option<u16>, own: usize) {
        if let Some(kernel) = &mut self.kernel {
            kernel.start(tid, cgroup);
            for _ in 0..own {
                kernel.attach(tid);
            }
        }
    }

    /// User code goes from one stack to another: it returns to the innermost call that both have,
    /// and calls from there.
    pub(super) fn run(
        &mut self,
        CpuTask { cpu, tid: task }: CpuTask,
        source: &dyn StackSource,
        (from, to): (StackId, StackId),
    ) -> Option<Fact> {
        let kernel = self.kernel.as_mut()?;

        // Frames count from the innermost, so both stacks are compared from their other ends.
        let (old, new) = (calls(source, from), calls(source, to));
        let common = (0..old.min(new)).take_while(|at| {
            call(source, from, old - 1 - at).0 == call(source, to, new - 1 - at).0
        });
        let common = common.count();

        // What both stacks have in common stays as it is in the ring.
        let (returns, made) = (old - common, new - common);

        // Inner frames return first, outer frames are called first.
        for index in 0..returns {
            // The address of the return itself is not modelled: the function's start stands for it.
            let (call, target) = call(source, from, index);
            let branch = Branch {
                from: target,
                to: call.wrapping_add(CALL_BYTES),
                kind: lbr::Kind::Return,
                task,
            };
            kernel.branch(cpu, branch);
        }

        for index in (0..made).rev() {
            let (from, to) = call(source, to, index);
            let branch = Branch {
                from,
                to,
                kind: lbr::Kind::Call,
                task,
            };
            kernel.branch(cpu, branch);
        }

        Some(Fact::Moved {
            returns: returns as u16,
            calls: made as u16,
        })
    }

    /// The contents of the CPU's ring.
    pub(super) fn sample(&self, cpu: usize) -> Branches {
        let Some(kernel) = &self.kernel else {
            return Branches::default();
        };
        Branches {
            hw_index: kernel.ring(cpu).map_or(0, |ring| ring.tos() as u64),
            entries: kernel.sample(cpu).into_iter().map(entry).collect(),
        }
    }

    /// The records of a task that a crash finds, newest first.
    pub(super) fn crash(&self, tid: i32) -> Vec<BranchEntry> {
        let found = self.kernel.as_ref().map(|kernel| kernel.crash(tid));
        let (_, records) = found.unwrap_or_default();
        records.into_iter().map(entry).collect()
    }

    /// A switch begins: the kernel finds the memory of the task that stops.
    pub(super) fn begin_switch(&mut self, cpu: usize) -> Option<Saving> {
        self.kernel.as_mut()?.begin_switch(cpu)
    }

    /// The switch ends; `tid` runs.
    pub(super) fn finish_switch(&mut self, saving: Saving, tid: i32) {
        if let Some(kernel) = &mut self.kernel {
            kernel.finish_switch(saving, tid);
        }
    }

    /// The CPU's task has exited, and the idle task runs.
    pub(super) fn idle(&mut self, cpu: usize) {
        if let Some(kernel) = &mut self.kernel {
            kernel.sched_task(cpu, 0);
        }
    }

    /// A task was created. `own` is the number of its own events; `None` if they are the parent's.
    pub(super) fn fork(&mut self, parent: i32, child: i32, own: Option<usize>) {
        if let Some(kernel) = &mut self.kernel {
            kernel.fork(parent, child, own.is_none());
            for _ in 0..own.unwrap_or(0) {
                kernel.attach(child);
            }
        }
    }

    /// A task exits. Returns whether there are branch records.
    pub(super) fn exit(&mut self, tid: i32) -> bool {
        let exit = |kernel: &mut Kernel| kernel.exit(tid);
        self.kernel.as_mut().map(exit).is_some()
    }

    /// An event is opened.
    pub(super) fn attach(&mut self, event: &EventSetup) {
        let Some(kernel) = self.kernel.as_mut().filter(|_| event.branch_stack) else {
            return;
        };
        match event.tid {
            Some(tid) => kernel.attach(tid),
            None => kernel.attach_system(event.cgroup),
        }
    }

    /// An event that counted these tasks is closed. Returns the memory to give back.
    pub(super) fn detach(
        &mut self,
        event: &EventSetup,
        tids: impl IntoIterator<Item = i32>,
    ) -> Vec<Dying> {
        let Some(kernel) = self.kernel.as_mut().filter(|_| event.branch_stack) else {
            return Vec::new();
        };
        if event.tid.is_none() {
            kernel.detach_system(event.cgroup);
            return Vec::new();
        }
        let tids = tids.into_iter();
        tids.filter_map(|tid| kernel.begin_detach(tid)).collect()
    }

    /// Gives memory back.
    pub(super) fn give_back(&mut self, dying: Vec<Dying>) {
        for dying in dying {
            if let Some(kernel) = &mut self.kernel {
                kernel.finish_detach(dying);
            }
        }
    }
}
