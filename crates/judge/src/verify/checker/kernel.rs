//! Follows a kernel that the machine executes: its stacks, of which each task has one, and what the
//! processor does between instructions.

use super::Checker;
use unwind_sim_emulator::machine::Executed;
use unwind_sim_emulator::state::Preserved;
use unwind_sim_emulator::system::{SystemEntry, SystemObserver};
use unwind_sim_emulator::{Core, Permissions};
use unwind_sim_record::kernel_generated::KernelGenerated;
use unwind_sim_record::kernel_modules::{ARGUMENTS, KernelModules};
use unwind_sim_record::kernel_stacks::{KernelPlaces, KernelTasks, enter, leave};
use unwind_sim_record::machine::{cpu, cpu_at};
use unwind_sim_unwind::image::Mapping;
use unwind_sim_unwind::truth::Tracker;

/// What is known of the kernel that is observed.
pub(super) struct FollowedKernel<'a> {
    tasks: KernelTasks,
    modules: Option<KernelModules>,
    generated: KernelGenerated<'a>,
}

impl FollowedKernel<'_> {
    /// Whether a function at `rip` loads code or frees it.
    pub(super) fn is_hook(&self, rip: u64) -> bool {
        let modules = self.modules.as_ref();
        modules.is_some_and(|modules| modules.is_hook(rip)) || self.generated.is_hook(rip)
    }
}

impl<'a> Checker<'a> {
    /// From now on what is observed is a kernel.
    pub fn follow_kernel(
        &mut self,
        mut places: KernelPlaces,
        modules: Option<KernelModules>,
        generated: KernelGenerated<'a>,
    ) {
        self.walks.end();
        self.stacks.code = std::mem::take(&mut places.code);
        self.kernel = Some(Box::new(FollowedKernel {
            tasks: KernelTasks::new(places),
            modules,
            generated,
        }));
    }
}

impl Checker<'_> {
    /// A function of the kernel is entered at `rip`. If it loads a module, its table is in force from now on;
    /// if it frees one, no longer. What was generated has to be looked for again if that changes.
    pub(super) fn entered_kernel_hook(&mut self, core: &Core, rip: u64) {
        let Some(kernel) = &mut self.kernel else {
            return;
        };
        let changed = match &mut kernel.modules {
            Some(modules) if modules.is_hook(rip) => {
                let args = ARGUMENTS.map(|register| core.state.gpr(register));
                modules.entered(rip, args, &core.memory)
            }
            _ if kernel.generated.is_hook(rip) => kernel.generated.forget(),
            _ => return,
        };
        self.change_code(changed);
    }

    /// Maps the generated code that the running task's stack leads through, if it is not known yet.
    pub(super) fn find_generated(&mut self, core: &Core) {
        let Some(kernel) = &mut self.kernel else {
            return;
        };
        let generated = &mut kernel.generated;
        let frames = self.stacks.tracker.frames().iter();
        let mut unknown = frames.filter(|held| generated.is_unknown(held.pc));
        let Some(held) = unknown.next() else {
            return;
        };
        let code = generated.read(held.pc, &core.memory);
        self.change_code(code);
    }

    fn change_code(&mut self, changed: Vec<Mapping>) {
        for mapping in changed {
            self.map_code(mapping);
            self.outcome.change_all();
        }
    }

    /// Code is mapped from the start.
    pub fn map_code(&mut self, mapping: Mapping) {
        self.mapped.places.mapped(&mapping);
        self.mapped.jit.mapped(&mapping);
        self.mapped.map(mapping, Permissions::READ_EXECUTE);
    }

    /// If the instruction that was executed has loaded rsp with the stack of another task: goes on with
    /// that one's frames.
    pub(super) fn switch_task(&mut self, core: &Core, next: u64) -> bool {
        let Some(kernel) = &mut self.kernel else {
            return false;
        };
        let running = self.stacks.task;
        let Some(switch) = kernel
            .tasks
            .switch(running, &self.current.before, core, next)
        else {
            return false;
        };
        if let Some(begins) = switch.begins {
            let ended = self.stacks.remove(switch.task);
            self.processes.add_earlier(ended);
            self.stacks.add(switch.task, begins);
        }

        self.stores.forget();
        self.outcome.change_all();
        self.stacks.switch(switch.task, &cpu_at(&core.state, next));
        self.walks.take_next();
        true
    }

    /// If the instruction that was executed is a far return at the root of a stack, and the word that it
    /// leaves at rsp is the address right behind it: a call, by which the first code of a kernel enters its
    /// C code (Linux `arch/x86/kernel/head_64.S`, of 6.1).
    pub(super) fn call_far(&mut self, core: &Core, insn: &Executed, next: u64) -> bool {
        if self.kernel.is_none() || !self.stacks.tracker.frames().is_empty() {
            return false;
        }
        let at = cpu_at(&core.state, next);
        let behind = insn.rip.wrapping_add(insn.len.into());
        if core.memory.read_u64(at.rsp) != Ok(behind) {
            return false;
        }
        let begun = Tracker::prepared(&at, behind, at.rsp.wrapping_add(8));
        let ended = std::mem::replace(&mut self.stacks.tracker, begun);
        self.processes.add_earlier(Some(*ended.stats()));
        self.outcome.change_all();
        self.walks.take_next();
        true
    }

    /// An instruction was executed behind which other code goes on.
    fn left_by(&mut self) {
        self.end_run();
        self.stores.forget();
        self.counts.executed += 1;
    }
}

impl SystemObserver for Checker<'_> {
    fn entered(&mut self, entry: &SystemEntry, core: &Core) {
        self.end_run();
        self.stores.forget();
        if !entry.from_user {
            self.walk_interrupted(core, &entry.interrupted);
        }
        let ended = enter(&mut self.stacks.tracker, entry, core);
        self.processes.add_earlier(ended);
        self.outcome.change_all();
        self.walks.take_next();
    }

    fn returned(&mut self, before: &Preserved, core: &Core) {
        self.left_by();
        let after = cpu_at(&core.state, core.state.rip);
        self.stacks.iret(&cpu(before), &after, core);
        self.outcome.change_all();
        self.walks.take_next();
    }

    fn left(&mut self, core: &Core) {
        self.left_by();
        let ended = leave(&mut self.stacks.tracker, &core.state);
        self.processes.add_earlier(Some(ended));
        self.outcome.change_all();
    }
}
