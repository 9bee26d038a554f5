//! The check at a call: the caller's row, with what a walk has in its frame.

use super::Checker;
use crate::check::{Contradiction, Subject};
use crate::verify::claim::{self, Claim, Wrong};
use crate::verify::code::{Known, NONE};
use crate::verify::findings::Check;
use crate::verify::frames::{caller, outer};
use crate::verify::walks::Window;
use unwind_sim_emulator::State;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::truth::{Held, TrueFrame, TrueKind, Truth};

impl Checker<'_> {
    /// A return address was pushed: the caller's row, with what a walk has in its frame.
    pub(super) fn check_call(&mut self, state: &State, known: &Known) {
        let frames = self.tracker.frames();
        let [.., held, callee] = frames else { return };
        let (held, callee) = (*held, *callee);
        if self.tracker.in_doubt() || known.behind == NONE {
            return;
        }
        let behind = self.code.returns[known.behind as usize];
        // At the call itself nothing was wrong, and nothing but rsp has changed since.
        let inside_right = behind.inside == known.claims
            && self.last_set == known.claims
            && !self.any_wrong
            && self.elide;
        let gpr = |number| match number {
            4 => callee.cfa,
            number => state.gpr(number),
        };
        for which in 0..self.finders.len() {
            self.tallies[which].calls += 1;
            let checks = [
                (Check::InsideCall, behind.inside, inside_right),
                (
                    Check::AtReturn,
                    behind.after,
                    inside_right && behind.after == behind.inside,
                ),
            ];
            for (check, set, right) in checks {
                let wrong = match &self.code.sets[set as usize].claims[which] {
                    Claim::Simple(simple) if simple.can_be_walked(&gpr, callee.cfa) => {
                        if right {
                            0
                        } else {
                            simple.wrong(&gpr, &state.memory, &caller(&held))
                        }
                    }
                    _ => claim::NOTHING,
                };
                if wrong != 0 {
                    self.count_call(state, known.behind, which, (check, wrong), &held, &callee);
                }
            }
        }
    }

    #[inline(never)]
    fn count_call(
        &mut self,
        state: &State,
        behind: u32,
        which: usize,
        (check, wrong): (Check, Wrong),
        held: &Held,
        callee: &Held,
    ) {
        let place = usize::from(check == Check::AtReturn);
        let known = &mut self.code.returns[behind as usize].findings[place];
        let is_wrong = match self.findings.again(*known, which, wrong) {
            Some(is_wrong) => is_wrong,
            None => {
                let found = self.call_contradictions(state, which, check, held, callee);
                let known = &mut self.code.returns[behind as usize].findings[place];
                let place = (which, check, callee.pc);
                self.findings.add(known, wrong, place, self.number, found)
            }
        };
        let tally = &mut self.tallies[which];
        match check {
            Check::InsideCall => tally.calls_wrong += u64::from(is_wrong),
            _ => tally.calls_wrong_at_return += u64::from(is_wrong),
        }
    }

    fn call_contradictions(
        &mut self,
        state: &State,
        which: usize,
        check: Check,
        held: &Held,
        callee: &Held,
    ) -> Vec<Contradiction> {
        let ra = callee.pc;
        let lookup = match check {
            Check::InsideCall => ra.wrapping_sub(1),
            _ => ra,
        };
        let mut saved = callee.saved;
        // What this unwinder does not carry a walk does not have.
        let finder = self.finders[which];
        let mut regs = Regs::UNKNOWN;
        for (value, reg) in saved.iter_mut().zip(Reg::CALLEE_SAVED) {
            if finder.carries().contains(reg) {
                regs.set(reg, *value);
            }
        }
        regs.set(Reg::Rip, lookup);
        regs.set(Reg::Rsp, callee.cfa);
        let frame = TrueFrame {
            pc: lookup,
            cfa: held.cfa,
            kind: TrueKind::Top,
            saved: Some(saved),
        };
        let truth = Truth::Known(vec![frame, outer(held, 0)]);
        // A walk has nothing to look for below its sp.
        let above = Window {
            memory: &state.memory,
            range: callee.cfa..u64::MAX,
        };
        let subject = Subject {
            space: &self.space,
            memory: &above,
            truth: &truth,
            live: &regs,
        };
        let mut found = subject.check_frame(finder, 0, &mut self.caches[which]);
        for contradiction in &mut found {
            contradiction.pc = CodeAddress::Return(ra);
        }
        found
    }
}
