//! What the last instruction was and what was wrong at it, for an index of a run.

use super::Checker;
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
