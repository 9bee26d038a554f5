//! Walks of a kernel's stacks by its own unwinders.

use super::Checker;
use super::stacks::Stacks;
use crate::verify::kernel::{KernelWalked, KernelWalks, WalkPlace};
use unwind_sim_emulator::Core;
use unwind_sim_emulator::state::Preserved;
use unwind_sim_record::machine::{cpu, cpu_at};
use unwind_sim_record::registers::live_registers;
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::truth::{Cpu, Stats};

/// The shadow stacks of an earlier state, and how many instructions later the next walk was due.
pub(in crate::verify) struct Saved(Stacks, u64);

impl Checker<'_> {
    /// From now on the kernel's stacks are walked, too.
    pub fn walk_kernel(&mut self, walks: KernelWalks) {
        self.kernel_walks = Some(Box::new(walks));
        self.walks.resume();
    }

    /// What became of these walks.
    pub fn finish_kernel_walks(&mut self) -> Vec<KernelWalked> {
        let walks = self.kernel_walks.take();
        walks.map_or_else(Vec::new, |walks| walks.finish())
    }

    /// What takes these walks.
    pub(in crate::verify) fn kernel_walks(&mut self) -> &mut Option<Box<KernelWalks>> {
        &mut self.kernel_walks
    }

    /// A walk is taken at the next instruction.
    pub(in crate::verify) fn walk_next(&mut self) {
        self.walks.take_next();
    }

    /// Whether the running function is the root of its stack.
    pub(in crate::verify) fn is_at_root(&self) -> bool {
        self.stacks.tracker.frames().is_empty()
    }

    /// The statistics of the shadow stacks.
    pub(in crate::verify) fn truth(&self) -> Stats {
        self.processes.stats().plus(&self.stacks.stats())
    }

    /// The shadow stacks, before something is tried that is undone.
    pub(in crate::verify) fn save(&mut self) -> Saved {
        self.end_run();
        let left = self.walks.due().saturating_sub(self.counts.executed);
        Saved(self.stacks.clone(), left)
    }

    /// Goes back to what was saved. What was found since is kept.
    pub(in crate::verify) fn restore(&mut self, saved: Saved) {
        self.end_run();
        self.stores.forget();
        self.stacks = saved.0;
        self.outcome.change_all();
        self.walks
            .set_due(self.counts.executed.saturating_add(saved.1));
    }

    /// Walks before the instruction at `rip`. Returns false if no kernel is walked.
    #[inline(never)]
    pub(super) fn walk_kernel_at(&mut self, core: &Core, rip: u64) -> bool {
        if self.kernel_walks.is_none() {
            return false;
        }
        let frames = self.stacks.tracker.frames().len() as u64;
        self.walks.plan(self.counts.executed, frames);
        let live = live_registers(&core.state, rip);
        self.take_kernel_walk(core, &live, &cpu_at(&core.state, rip));
        true
    }

    /// Walks from the registers of what was interrupted, before the shadow stack knows of the handler at
    /// whose first instruction `core` is.
    pub(super) fn walk_interrupted(&mut self, core: &Core, interrupted: &Preserved) {
        if self.kernel_walks.is_some() {
            let mut live = live_registers(&core.state, interrupted.rip);
            live.set(Reg::Rsp, interrupted.rsp);
            self.take_kernel_walk(core, &live, &cpu(interrupted));
        }
    }

    fn take_kernel_walk(&mut self, core: &Core, live: &Regs, at: &Cpu) {
        self.find_generated(core);
        let tracker = &self.stacks.tracker;
        let (Some(walks), false) = (&mut self.kernel_walks, tracker.in_doubt()) else {
            return;
        };
        let place = WalkPlace {
            space: &self.mapped.space,
            live,
            truth: &tracker.truth(at),
            number: self.counts.executed,
        };
        let engines = self.unwinders.engines.iter();
        let mut tables = engines.zip(&mut self.unwinders.caches);
        let finder = tables.find_map(|(engine, cache)| Some((engine.finder()?, cache)));
        walks.take(core, &place, finder);
    }
}
