//! Follows a kernel that the machine executes: its stacks, of which each task has one, and what the
//! processor does between instructions.

use super::Checker;
use unwind_sim_emulator::state::Preserved;
use unwind_sim_emulator::system::{SystemEntry, SystemObserver};
use unwind_sim_emulator::{Core, Permissions};
use unwind_sim_record::kernel_stacks::{KernelPlaces, KernelTasks, enter, leave};
use unwind_sim_record::machine::{cpu, cpu_at};
use unwind_sim_unwind::image::Mapping;

impl Checker<'_> {
    /// From now on what is observed is a kernel.
    pub fn follow_kernel(&mut self, mut places: KernelPlaces) {
        self.walks.end();
        self.stacks.code = std::mem::take(&mut places.code);
        self.kernel = Some(Box::new(KernelTasks::new(places)));
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
        let Some(switch) = kernel.switch(running, &self.current.before, core, next) else {
            return false;
        };
        if let Some(begins) = switch.begins {
            let ended = self.stacks.remove(switch.task);
            self.processes.add_earlier(ended);
            self.stacks.add(switch.task, begins);
        }

        self.stores.forget();
        self.outcome.change_all();
        self.stacks.rest();
        self.stacks.switch(switch.task, &cpu_at(&core.state, next));
        self.stacks.wake();
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
