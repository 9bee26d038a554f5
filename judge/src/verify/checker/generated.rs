//! Generated code: the tables that the program registers for it, and the names that it tells.

use super::Checker;
use std::ops::Range;
use unwind_sim_emulator::Core;
use unwind_sim_emulator::linux::SystemCall;
use unwind_sim_record::jit;

impl Checker<'_> {
    /// The function at `rip`, which registers unwind tables, is entered.
    #[cold]
    pub(super) fn entered_hook(&mut self, core: &Core, rip: u64) {
        const ARGUMENTS: [usize; 4] = [7, 6, 2, 1];
        let args = ARGUMENTS.map(|register| core.state.gpr(register));
        let changed = self.jit.entered(rip, args, &core.memory);
        self.lay(&changed);
    }

    /// A system call may have written to a jitdump file.
    pub(super) fn wrote_jitdump(&mut self, call: &SystemCall, core: &Core) {
        let changed = self.jit.called(call, &core.memory);
        self.lay(&changed);
    }

    /// Puts the registered tables in force for these parts of the memory.
    pub(super) fn lay(&mut self, ranges: &[Range<u64>]) {
        let before = self.space.stamp();
        for range in ranges {
            for mapping in self.jit.layout(&self.space, range) {
                self.space.map(mapping);
            }
        }
        self.images_changed(before);
    }

    /// Code at `rip` was looked up: if it is generated, its place will get names.
    #[cold]
    pub(super) fn meet_generated(&mut self, rip: u64) {
        if self.space.find(rip).is_some_and(jit::is_generated) {
            let place = self.places.at(&self.space, rip);
            self.generated.meet(self.task.process, place);
        }
    }

    /// Counts an instruction of generated code without a table.
    #[inline(never)]
    pub(super) fn count_generated(&mut self, rip: u64) {
        let place = self.places.at(&self.space, rip);
        self.generated.count(place, rip);
        for (which, tally) in (0..).zip(&mut self.tallies) {
            tally.no_table += u64::from(self.no_table >> which & 1);
        }
    }

    /// Names generated code, before [`Checker::finish`]. `file` reads a file as the program sees
    /// it.
    pub fn name_generated(&mut self, file: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>) {
        let others = self
            .processes
            .iter()
            .map(|(&number, other)| (number, &other.jit));
        let running = others.chain([(self.task.process, &self.jit)]);
        self.generated.name(running, &mut self.places, file);
    }
}
