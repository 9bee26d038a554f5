//! Takes walks of the whole stack at the next instruction.

use super::{Checker, WALK_EVERY, WALK_FRAMES};
use crate::check::Subject;
use crate::verify::findings;
use unwind_sim_emulator::Core;
use unwind_sim_record::machine::{MachineMemory, cpu_at};
use unwind_sim_record::registers::live_registers;

impl Checker<'_> {
    pub(super) fn walk(&mut self, core: &Core, rip: u64) {
        let depth = self.tracker.frames().len() as u64;
        self.next_walk = self.number + WALK_EVERY * depth.div_ceil(WALK_FRAMES).max(1);

        // While the truth is in doubt, there is no chain to compare with.
        if self.tracker.in_doubt() {
            return;
        }

        let truth = self.tracker.truth(&cpu_at(&core.state, rip));
        let live = live_registers(&core.state, rip);
        let subject = Subject {
            space: &self.space,
            memory: &MachineMemory(&core.memory),
            truth: &truth,
            live: &live,
            is_whole: true,
        };

        let found = self.walks.take(
            self.engines,
            &subject,
            &mut self.caches,
            &self.judged.map(|judged| judged.wrong),
            (self.number, self.places.at(&self.space, rip)),
        );

        for (which, contradiction) in found {
            let depth = self.tracker.frames().len().checked_sub(1);
            let site = findings::Site {
                place: self
                    .places
                    .at(&self.space, contradiction.pc.symbol_address()),
                address: contradiction.pc.value(),
                activation: self.activation(depth.and_then(|d| d.checked_sub(contradiction.frame))),
                number: self.number,
            };

            self.findings.walked(which, site, &contradiction);
        }
    }
}
