//! Takes walks of the whole stack at the next instruction.

use super::Checker;
use crate::check::Subject;
use crate::verify::findings;
use unwind_sim_emulator::Core;
use unwind_sim_record::machine::{MachineMemory, cpu_at};
use unwind_sim_record::registers::live_registers;

impl Checker<'_> {
    pub(super) fn walk(&mut self, core: &Core, rip: u64) {
        if self.walk_kernel_at(core, rip) {
            return;
        }
        let (tracker, number) = (&self.stacks.tracker, self.counts.executed);
        // Planned even where none can be taken: otherwise it would be asked for at each
        // instruction.
        self.walks.plan(number, tracker.frames().len() as u64);

        // While the truth is in doubt, there is no chain to compare with.
        if tracker.in_doubt() {
            return;
        }

        let truth = tracker.truth(&cpu_at(&core.state, rip));
        let live = live_registers(&core.state, rip);
        let place = self.mapped.place(rip);
        let subject = Subject {
            space: &self.mapped.space,
            memory: &MachineMemory(&core.memory),
            truth: &truth,
            live: &live,
            is_whole: true,
        };

        let found = self.walks.take(
            self.unwinders.engines,
            &subject,
            &mut self.unwinders.caches,
            &self.outcome.judged.map(|judged| judged.wrong),
            (number, place),
        );

        for (which, contradiction) in found {
            // A walk counts frames from the innermost one, the shadow stack from the outermost.
            let depth = self.stacks.tracker.frames().len().checked_sub(1);
            let frame = depth.and_then(|depth| depth.checked_sub(contradiction.frame));
            let site = findings::Site {
                place: self.mapped.place(contradiction.pc.symbol_address()),
                address: contradiction.pc.value(),
                activation: self.stacks.activation(frame),
                number,
            };

            self.findings.walked(which, site, &contradiction);
        }
    }
}
