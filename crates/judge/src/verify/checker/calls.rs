//! Checks the caller's row at a call, with the registers that a walk has in its frame.

use super::Checker;
use crate::check::{Class, Contradiction, Subject};
use crate::target;
use crate::verify::claim::{self, Claim, Judged, Wrong};
use crate::verify::code::Known;
use crate::verify::findings::{Check, Site};
use crate::verify::frames::outer;
use crate::verify::numbered::NONE;
use crate::verify::walks::Window;
use unwind_sim_emulator::Core;
use unwind_sim_record::machine::MachineMemory;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::frame::Frame;
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::truth::{ShadowFrame, TrueFrame, TrueKind, Truth};

impl Checker<'_> {
    /// Checks the caller's row after a return address was pushed, with the registers that a walk
    /// has in its frame.
    pub(super) fn check_call(&mut self, core: &Core, known: &Known) {
        // The caller's own frame may be doubtful, though the call is not.
        let [.., held, callee] = self.stacks.tracker.known() else {
            return;
        };

        let (held, callee) = (*held, *callee);
        if self.stacks.tracker.in_doubt() || known.behind() == NONE {
            return;
        }

        let behind = self.code.returns[known.behind() as usize];
        let sets = [behind.inside, behind.after].map(|set| self.code.set(set).map(|s| s.claims));
        let [Some(inside), Some(after)] = sets else {
            return;
        };

        // A walk gets rsp from the callee's CFA; the other registers are those of the call.
        let gpr = |number| match number {
            4 => callee.cfa,
            number => core.state.gpr(number),
        };

        for which in 0..self.unwinders.len() {
            if *self.code.claim(inside[which]) == Claim::NoTable {
                continue;
            }

            self.counts.tallies[which].calls += 1;
            let Judged { claim, wrong, .. } = self.outcome.judged[which];
            // What was found at the call itself, which the checks below often only repeat.
            let mut last = (claim, wrong);

            for (check, set) in [(Check::InsideCall, &inside), (Check::AtReturn, &after)] {
                let number = set[which];
                let wrong = match self.code.claim(number) {
                    Claim::Simple(simple) if simple.can_be_walked(&gpr, callee.cfa) => {
                        // At the call itself all registers had the same values, and the call stored
                        // below everything that a walk reads.
                        if last.0 != number || !self.outcome.elide {
                            self.counts.work.whole += 1;
                            last = (number, simple.wrong(&gpr, &core.memory, &held));
                        }
                        last.1
                    }
                    _ => claim::NOTHING,
                };

                if wrong != 0 {
                    self.count_call(core, known.behind(), which, (check, wrong), &held, &callee);
                }
            }
        }
    }

    #[inline(never)]
    fn count_call(
        &mut self,
        core: &Core,
        behind: u32,
        which: usize,
        (check, wrong): (Check, Wrong),
        held: &ShadowFrame,
        callee: &ShadowFrame,
    ) {
        let known = self.code.findings_behind(behind);
        // The callee is the innermost frame: the row is that of the function around it.
        let caller = self.stacks.tracker.frames().len().checked_sub(2);
        let activation = self.stacks.activation(caller);
        let now = (activation, self.counts.executed);

        // Only an outcome that is new at this call is checked in full, for its contradictions.
        let is_wrong = match self.findings.again(known, (which, check), wrong, now) {
            Some(is_wrong) => is_wrong,
            None => {
                let found = self.call_contradictions(core, which, check, held, callee);
                let site = Site {
                    // The place of the call, which was executed.
                    place: self.mapped.place(callee.pc.wrapping_sub(1)),
                    address: callee.pc,
                    activation,
                    number: self.counts.executed,
                };
                self.show(core, site.place, callee.pc, callee.pc.wrapping_sub(1));
                let check = (which, check);
                let Some(known) = self.code.findings_behind_mut(behind) else {
                    return;
                };
                self.findings.add(known, wrong, check, site, &found)
            }
        };

        let tally = &mut self.counts.tallies[which];
        match check {
            Check::InsideCall => tally.calls_wrong += u64::from(is_wrong),
            _ => tally.calls_wrong_at_return += u64::from(is_wrong),
        }
    }

    /// The contradictions of the row of the caller `held` at its call of `callee`.
    pub(super) fn call_contradictions(
        &mut self,
        core: &Core,
        which: usize,
        check: Check,
        held: &ShadowFrame,
        callee: &ShadowFrame,
    ) -> Vec<Contradiction> {
        let ra = callee.pc;
        let inside = ra.wrapping_sub(1);

        // A walk that comes out of the callee has these registers as they were at the call.
        let mut saved = callee.saved;
        // A walk does not have the registers that this unwinder does not carry.
        let finder = self.unwinders.finders[which];
        let mut regs = Regs::UNKNOWN;
        for (value, reg) in saved.iter_mut().zip(Reg::CALLEE_SAVED) {
            if finder.carries().contains(reg) {
                regs.set(reg, *value);
            }
        }

        regs.set(Reg::Rip, inside);
        regs.set(Reg::Rsp, callee.cfa);
        let frame = TrueFrame {
            pc: inside,
            cfa: held.cfa,
            kind: TrueKind::Top,
            saved: Some(saved),
        };

        let truth = Truth::Known(vec![frame, outer(held, 0)]);
        // A walk does not read below its sp.
        let above = Window {
            memory: &MachineMemory(&core.memory),
            range: callee.cfa..u64::MAX,
        };

        let subject = Subject {
            space: &self.mapped.space,
            memory: &above,
            truth: &truth,
            live: &regs,
            is_whole: true,
        };

        let cache = &mut self.unwinders.caches[which];

        // The caller's frame as that of an instruction, so that the row of just this address is
        // taken.
        let mut contradictions = |address| {
            let frame = Frame {
                pc: CodeAddress::Instruction(address),
                topmost: false,
                ..Frame::top(regs)
            };
            let mut found = subject.check_in(finder, &frame, 0, cache);
            if target::passes_return(&subject, finder, (&frame, 0), &found, cache) {
                for contradiction in &mut found {
                    contradiction.code = Code::RowOfTarget;
                }
            }
            found
        };

        // Only the call is known to have been executed; what is missing behind it may be no defect.
        let at_call = contradictions(inside);
        let mut found = match check {
            Check::InsideCall => at_call,
            _ => behind_call(contradictions(ra), &at_call),
        };

        for contradiction in &mut found {
            contradiction.pc = CodeAddress::Return(ra);
        }
        found
    }
}

/// Adjusts the codes of `found`, the contradictions of the row at a return address. Only the call
/// is known to have been executed, not the code after it. `at_call` has the contradictions of the
/// call's own row.
fn behind_call(mut found: Vec<Contradiction>, at_call: &[Contradiction]) -> Vec<Contradiction> {
    let has_row = |c: &Contradiction| c.code != Code::NoRowForExecuted;
    for contradiction in &mut found {
        if contradiction.code == Code::NoRowForExecuted {
            if at_call.iter().all(has_row) {
                contradiction.code = Code::NoRow;
            }
        } else if at_call.is_empty() && contradiction.class() == Class::Wrong {
            contradiction.code = Code::RowBehindCall;
        }
    }
    found
}
