//! Counts and explains what is wrong at the next instruction.

use super::Checker;
use crate::check::{Contradiction, Subject};
use crate::diagnose::frame_pointer_cause;
use crate::verify::claim::{Claim, Judged};
use crate::verify::findings::{self, Check};
use crate::verify::frames::{outer, top};
use unwind_sim_emulator::Core;
use unwind_sim_emulator::machine::Executed;
use unwind_sim_record::machine::{MachineMemory, cpu_at};
use unwind_sim_record::registers::live_registers;
use unwind_sim_unwind::truth::{ShadowFrame, TrueKind, Truth};

impl Checker<'_> {
    /// Counts what is wrong at the next instruction.
    #[inline]
    pub(super) fn count(&mut self, core: &Core, insn: &Executed) {
        if self.outcome.no_table != 0 {
            self.count_generated(core, insn.rip);
        }
        let activation = self.stacks.running();
        let mut left = self.outcome.wrong;
        while left != 0 {
            let which = left.trailing_zeros() as usize;
            left &= left - 1;
            let wrong = self.outcome.judged[which].wrong;
            let check = (which, Check::Instruction);
            let now = (activation, self.counts.executed);
            let place = self.code.findings(insn.index);
            let again = self.findings.again(place, check, wrong, now);
            let is_wrong = match again {
                Some(is_wrong) => is_wrong,
                None => self.add(core, insn, which),
            };
            self.counts.tallies[which].wrong += u64::from(is_wrong);
        }
    }

    /// Adds an outcome that is new at this instruction.
    #[cold]
    #[inline(never)]
    fn add(&mut self, core: &Core, insn: &Executed, which: usize) -> bool {
        let Some(&held) = self.stacks.tracker.frames().last() else {
            return false;
        };
        let site = findings::Site {
            place: self.mapped.place(insn.rip),
            address: insn.rip,
            activation: self.stacks.running(),
            number: self.counts.executed,
        };

        let check = (which, Check::Instruction);
        let Judged { claim, wrong, .. } = self.outcome.judged[which];

        // A plain outcome that is known need not be computed again.
        if held.kind == TrueKind::Call
            && let Claim::Simple(simple) = self.code.claim(claim)
            && simple.is_plain(wrong, &|number| core.state.gpr(number), &core.memory)
            && let Some(place) = self.code.findings_mut(insn.index)
            && self.findings.add_plain(place, wrong, check, &site)
        {
            return true;
        }

        let found = self.contradictions(core, insn.rip, &held, which);
        // At the end of the run, the bytes of generated code may be gone.
        self.show(core, site.place, insn.rip, insn.rip);
        // The quick check said that something is wrong, and the full one does not: that is a bug of
        // ours.
        if found.is_empty() {
            self.walks.disagree(which, &site, "the quick check");
        }

        let Some(place) = self.code.findings_mut(insn.index) else {
            return false;
        };
        self.findings.add(place, wrong, check, site, &found)
    }

    /// The contradictions that the one-frame check finds in the innermost frame.
    #[cold]
    pub(super) fn contradictions(
        &mut self,
        core: &Core,
        rip: u64,
        held: &ShadowFrame,
        which: usize,
    ) -> Vec<Contradiction> {
        let live = live_registers(&core.state, rip);
        // One step is checked, which needs no more than this frame and its caller.
        let truth = Truth::Known(vec![
            top(&cpu_at(&core.state, rip), held.cfa),
            outer(held, 0),
        ]);

        let subject = Subject {
            space: &self.mapped.space,
            memory: &MachineMemory(&core.memory),
            truth: &truth,
            live: &live,
            is_whole: true,
        };

        let cache = &mut self.unwinders.caches[which];
        let mut found = subject.check_frame(self.unwinders.finders[which], 0, cache);

        // A rule by frame pointer is wrong because of the code, which says more than the rule.
        for contradiction in &mut found {
            let row = contradiction.row.as_ref();
            if row.is_some_and(|row| row.rule.by_frame_pointer)
                && let Some(code) = frame_pointer_cause(&subject, 0, cache)
            {
                contradiction.code = code;
            }
        }

        found
    }
}
