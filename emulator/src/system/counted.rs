//! A processor with performance counters executes: what it does is counted, and its branches are recorded.

use super::counters::Counters;
use super::last_branches::{Branch, Kind};
use super::{System, SystemObserver};
use iced_x86::Decoder;

/// A processor whose performance counters are not modelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("only Intel's Skylake (level v3) has performance counters here")]
pub struct NoCounters;

impl System {
    /// Gives the processor performance counters and last branch records, which it does not have without.
    ///
    /// # Errors
    /// If it is none of those that have them here: see [`Generation::has_counters`](crate::processor::Generation::has_counters).
    pub fn add_counters(&mut self) -> Result<(), NoCounters> {
        if !self.machine.core.processor.generation().has_counters() {
            return Err(NoCounters);
        }
        self.registers.counters = Some(Box::new(Counters::new(self.executed())));
        Ok(())
    }

    /// [`System::advance`], with performance counters: what is executed is counted, and branches are recorded.
    pub(super) fn advance_counted<O: SystemObserver>(&mut self, left: u64, observer: &mut O) {
        let (executed, privilege) = (self.executed(), self.privilege());
        let recorded = self.is_recording().then(|| self.next_branch());
        self.advance(left, observer);
        if let Some(branch) = recorded {
            self.record_branch(branch, self.executed() != executed);
        }
        self.count_executed(privilege);
    }

    /// Counts what was executed at this privilege level since that was counted last: also in front of an
    /// instruction that may read or write a counter.
    pub(super) fn count_executed(&mut self, privilege: u8) {
        let executed = self.executed();
        let counters = self.registers.counters.as_mut();
        if counters.is_some_and(|counters| counters.count_to(executed, privilege))
            && let Some(devices) = self.devices()
        {
            devices.performance_interrupt();
        }
    }

    /// Whether each branch is recorded.
    pub(super) fn is_recording(&self) -> bool {
        let counters = self.registers.counters.as_ref();
        counters.is_some_and(|counters| counters.is_recording())
    }

    /// The next instruction: its address, the one behind it, and its kind, if it is a branch.
    fn next_branch(&self) -> (u64, u64, Option<Kind>) {
        let rip = self.machine.core.state.rip;
        let bytes = self.instruction_bytes();
        let options = self.machine.core.processor.decoder_options();
        let insn = Decoder::with_ip(64, &bytes, rip, options).decode();
        (rip, insn.next_ip(), Kind::of(&insn))
    }

    /// Records what the instruction did, or, if it was not executed, the way to a handler.
    fn record_branch(&mut self, (from, next, kind): (u64, u64, Option<Kind>), was_executed: bool) {
        let (to, privilege) = (self.machine.core.state.rip, self.privilege());
        let executed = self.executed();
        let kind = if was_executed { kind } else { Some(Kind::Far) };
        // A jump that was not taken goes on behind it, and where nothing was executed there may be no handler.
        let is_taken = match kind {
            _ if !was_executed => to != from,
            Some(Kind::Conditional) => to != next,
            _ => true,
        };
        if let Some(kind) = kind.filter(|_| is_taken)
            && let Some(counters) = &mut self.registers.counters
            && let Some(branches) = counters.recording()
        {
            branches.record(Branch {
                kind,
                from,
                to,
                next,
                privilege,
                executed,
            });
        }
    }
}
