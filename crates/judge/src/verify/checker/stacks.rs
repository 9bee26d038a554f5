//! The shadow stacks of the threads of a process, each with the calls that made its frames.

use crate::verify::departures::Activation;
use crate::verify::numbered::NONE;
use std::collections::HashMap;
use unwind_sim_emulator::linux::Task;
use unwind_sim_emulator::{Core, State};
use unwind_sim_record::machine::{KernelCode, MachineWorld, cpu_at};
use unwind_sim_record::shadow::process_tracker;
use unwind_sim_unwind::insn::Insn;
use unwind_sim_unwind::truth::{Cpu, Stats, Suspended, Tracker};

/// The claims of a call's row, for the frame that the call created.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    /// The slot of the frame's return address.
    slot: u64,
    /// The claims, as the number of a set in [`crate::verify::code::Code`].
    inside: u32,
    /// The number of the call's instruction.
    number: u64,
}

const NO_SITE: Site = Site {
    slot: 0,
    inside: NONE,
    number: 0,
};

/// The shadow stacks of a process. `task` is the thread that runs, or that ran last: its stack is
/// `tracker`, and those of the other threads are in `others`.
///
/// A site belongs to the frame at its index only if both have the same slot: it stays when the frame
/// returns, and a frame that no call has made has none.
#[derive(Clone)]
pub(super) struct Stacks {
    pub(super) task: Task,
    pub(super) tracker: Tracker,
    sites: Vec<Site>,
    others: HashMap<Task, (Tracker, Vec<Site>)>,
    /// The stacks that no thread is on, by which switches between them are recognised.
    suspended: Suspended,
    /// Of a kernel, what is known of its code; of a process nothing.
    pub(super) code: KernelCode,
}

impl Stacks {
    /// Those of the first process, before it starts.
    pub(super) fn new() -> Stacks {
        Stacks {
            task: Task::FIRST,
            tracker: Tracker::root(&Cpu::default(), 0),
            sites: Vec::new(),
            others: HashMap::new(),
            suspended: Suspended::new(),
            code: KernelCode::default(),
        }
    }

    /// A program starts, with one thread.
    pub(super) fn started(&mut self, cpu: &Cpu, stack_end: u64) {
        self.others.clear();
        self.task.thread = self.task.process;
        self.tracker = Tracker::root(cpu, stack_end);
    }

    /// Forgets what the program before had besides its threads.
    pub(super) fn clear(&mut self) {
        self.suspended = Suspended::new();
        self.sites.clear();
    }

    /// A thread starts with this stack.
    pub(super) fn add(&mut self, task: Task, tracker: Tracker) {
        self.others.insert(task, (tracker, Vec::new()));
    }

    /// A thread that does not run has ended. Returns the statistics of its stack.
    pub(super) fn remove(&mut self, task: Task) -> Option<Stats> {
        let (tracker, _) = self.others.remove(&task)?;
        Some(*tracker.stats())
    }

    /// The stacks of a new process, whose thread has the state `state`. The call was made at
    /// `rsp_before`.
    pub(super) fn fork(&self, child: Task, rsp_before: u64, state: &State) -> Stacks {
        Stacks {
            task: child,
            tracker: process_tracker(&self.tracker, rsp_before, state),
            sites: self.sites.clone(),
            others: HashMap::new(),
            suspended: self.suspended.clone(),
            code: self.code.clone(),
        }
    }

    /// Nothing is known of the stack of a thread any more: it has `unknown` instead. The sites of calls
    /// and the frames belong together, so both are given up. Returns the statistics of what it had.
    pub(super) fn disturb(&mut self, task: Task, unknown: Tracker) -> Option<Stats> {
        let (tracker, sites) = if task == self.task {
            (&mut self.tracker, &mut self.sites)
        } else {
            let (tracker, sites) = self.others.get_mut(&task)?;
            (tracker, sites)
        };
        sites.clear();
        let before = std::mem::replace(tracker, unknown);
        Some(*before.stats())
    }

    /// The running thread stops.
    pub(super) fn rest(&mut self) {
        self.tracker.rest(&mut self.suspended);
    }

    /// The running thread goes on.
    pub(super) fn wake(&mut self) {
        self.tracker.wake(&mut self.suspended);
    }

    /// Continues with another thread, which has these registers.
    pub(super) fn switch(&mut self, task: Task, cpu: &Cpu) {
        if task == self.task {
            return;
        }
        let next = self.others.remove(&task);
        let next = next.unwrap_or_else(|| (Tracker::middle(cpu, cpu.rsp), Vec::new()));
        let (tracker, sites) = next;
        let last = (
            std::mem::replace(&mut self.tracker, tracker),
            std::mem::replace(&mut self.sites, sites),
        );
        self.others.insert(self.task, last);
        self.task = task;
    }

    /// The running thread has executed an instruction that may change frames. `before` and `rax` are of
    /// before it, and the next instruction is at `next`.
    #[inline]
    pub(super) fn step(&mut self, class: Insn, (before, rax): (&Cpu, u64), core: &Core, next: u64) {
        let after = cpu_at(&core.state, next);
        let mut world = MachineWorld::kernel(core, &self.code);
        let (tracker, suspended) = (&mut self.tracker, &mut self.suspended);
        tracker.step(class, before, rax, &after, suspended, &mut world);
    }

    /// `iret` has returned to ring 0.
    pub(super) fn iret(&mut self, before: &Cpu, after: &Cpu, core: &Core) {
        let mut world = MachineWorld::kernel(core, &self.code);
        let suspended = &mut self.suspended;
        self.tracker.iret(before, after, suspended, &mut world);
    }

    /// The word at `address`, which was `old`, is `new`: a saved register of interrupted code.
    pub(super) fn rewrite_trapped(&mut self, address: u64, word: (u64, u64), core: &Core) {
        let mut world = MachineWorld::kernel(core, &self.code);
        self.tracker.rewrite_trapped(address, word, &mut world);
    }

    /// The innermost frame, by the number of frames, its slot and its pc, and whether the truth is in
    /// doubt.
    pub(super) fn top(&self) -> (Option<(usize, u64, u64)>, bool) {
        let frames = self.tracker.frames();
        let top = frames.last().map(|held| (frames.len(), held.slot, held.pc));
        (top, self.tracker.in_doubt())
    }

    /// Records the call that created the innermost frame: its number, and the set of claims of its row.
    #[inline]
    pub(super) fn note_site(&mut self, inside: u32, number: u64) {
        let frames = self.tracker.frames();
        let Some(callee) = frames.last() else { return };
        let slot = callee.slot;
        self.sites.resize(frames.len() - 1, NO_SITE);
        self.sites.push(Site {
            slot,
            inside,
            number,
        });
    }

    /// The set of claims of the row at the call that made frame `index`, if it is known.
    #[inline]
    pub(super) fn claims_at_call(&self, index: usize) -> Option<u32> {
        let (callee, site) = (self.tracker.frames().get(index)?, self.sites.get(index)?);
        (site.slot == callee.slot).then_some(site.inside)
    }

    /// The call of the function that returns by frame `index`.
    #[inline]
    pub(super) fn activation(&self, index: Option<usize>) -> Activation {
        let index = index?;
        let (held, site) = (self.tracker.frames().get(index)?, self.sites.get(index)?);
        // This holds too while the return address is in a register.
        (held.cfa == site.slot.wrapping_add(8)).then_some(site.number)
    }

    /// The call of the running function.
    #[inline]
    pub(super) fn running(&self) -> Activation {
        self.activation(self.tracker.frames().len().checked_sub(1))
    }

    /// A pc in the function that returns by frame `index`; 0 for the running function.
    pub(super) fn pc_in(&self, index: usize) -> u64 {
        let callee = self.tracker.frames().get(index + 1);
        callee.map_or(0, |held| held.pc.wrapping_sub(1))
    }

    /// The statistics of all of them.
    pub(super) fn stats(&self) -> Stats {
        let others = self.others.values().map(|(tracker, _)| tracker.stats());
        others.fold(*self.tracker.stats(), |sum, stats| sum.plus(stats))
    }

    /// The number of sites.
    #[cfg(test)]
    pub(super) fn site_count(&self) -> usize {
        self.sites.len()
    }
}
