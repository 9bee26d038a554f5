//! What the last instruction was and what was wrong at it, for an index of a run.

use super::Checker;
use crate::verify::findings::Check;
use unwind_sim_emulator::Core;
use unwind_sim_unwind::address::Lookup;
use unwind_sim_unwind::insn::Insn;

impl Checker<'_> {
    /// The number of instructions executed.
    pub fn number(&self) -> u64 {
        self.counts.executed
    }

    /// A bit for each unwinder whose row is wrong at the instruction that is about to be executed.
    /// A loss of a derived table counts.
    #[inline]
    pub fn wrong_here(&self) -> u8 {
        self.outcome.wrong
    }

    /// Whether what is wrong with an unwinder at the next instruction, at `rip`, counts: it is more than
    /// what a derived table cannot hold.
    pub fn counts_here(&mut self, core: &Core, rip: u64, which: usize) -> bool {
        let Some(&held) = self.stacks.tracker.frames().last() else {
            return false;
        };
        let found = self.contradictions(core, rip, &held, which);
        found.iter().any(|found| found.class().counts(false))
    }

    /// The same of the call that was just executed, with the lookup that the unwinder uses.
    pub fn counts_at_call(&mut self, core: &Core, which: usize) -> bool {
        let [.., held, callee] = self.stacks.tracker.known() else {
            return false;
        };
        let (held, callee) = (*held, *callee);
        let check = match self.unwinders.finders[which].lookup() {
            Lookup::InsideCall => Check::InsideCall,
            Lookup::AtReturn => Check::AtReturn,
        };
        let found = self.call_contradictions(core, which, check, &held, &callee);
        found.iter().any(|found| found.class().counts(false))
    }

    /// Whether the last instruction was a call.
    #[inline]
    pub fn was_call(&self) -> bool {
        matches!(self.current.class, Insn::Call { .. })
    }

    /// The number of calls at which each unwinder was wrong, with the lookup that it uses.
    pub fn calls_wrong(&self) -> impl Iterator<Item = u64> {
        self.unwinders
            .finders
            .iter()
            .zip(&self.counts.tallies)
            .map(|(finder, tally)| match finder.lookup() {
                Lookup::InsideCall => tally.calls_wrong,
                Lookup::AtReturn => tally.calls_wrong_at_return,
            })
    }
}
