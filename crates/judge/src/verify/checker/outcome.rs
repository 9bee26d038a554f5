//! The outcome of the last check of the innermost frame, and what has changed since.

use super::stray::EVERYWHERE;
use crate::verify::claim::{self, Claim, Judged, Parts, Simple};
use crate::verify::code::{Code, Set};
use crate::verify::numbered::{NONE, UNWINDERS_MAX};
use crate::verify::repeats::Key;
use crate::verify::work::Work;
use unwind_sim_emulator::Core;
use unwind_sim_emulator::address_space::Guard;
use unwind_sim_unwind::truth::ShadowFrame;

/// The outcome of the last check of the innermost frame.
///
/// `changed` has at least every part that an instruction may have written since. So while
/// [`Outcome::holds`] for a set of claims, the outcome of a check of that set is this one, and a store
/// outside of `slots` changes neither it nor a live slot.
///
/// Where a check is left out, [`Outcome::give_up`] has to take its place.
pub(super) struct Outcome {
    /// Whether outcomes are used again. If not, everything is computed.
    pub(super) elide: bool,
    /// The set of claims; [`NONE`] if the outcome cannot be used again.
    pub(super) set: u32,
    /// By unwinder.
    pub(super) judged: [Judged; UNWINDERS_MAX],
    /// A bit for each unwinder for which something is wrong.
    pub(super) wrong: u8,
    /// A bit for each unwinder for which the instruction is generated code without a table.
    pub(super) no_table: u8,
    /// Which unwinders are wrong, and in what. It is that of an outcome that can be used again.
    pub(super) key: Key,
    /// What may have changed since.
    pub(super) changed: Parts,
    /// What the outcome depends on.
    depends: Parts,
    /// The slots that the claims read, and all live slots.
    pub(super) slots: Guard,
}

impl Outcome {
    /// Nothing was checked yet.
    pub(super) fn new(elide: bool) -> Outcome {
        Outcome {
            elide,
            set: NONE,
            judged: [Judged::NOTHING; UNWINDERS_MAX],
            wrong: 0,
            no_table: 0,
            key: Key::TOO_MANY,
            changed: claim::ALL,
            depends: 0,
            slots: EVERYWHERE,
        }
    }

    /// Whether a check of this set of claims would have this outcome.
    #[inline(always)]
    pub(super) fn holds(&self, set: u32) -> bool {
        set == self.set && self.changed & self.depends == 0
    }

    /// These parts may have been written.
    #[inline(always)]
    pub(super) fn change(&mut self, parts: Parts) {
        self.changed |= parts;
    }

    /// The frame is another one, or anything else that cannot be said in parts has happened.
    #[inline]
    pub(super) fn change_all(&mut self) {
        self.changed = claim::ALL;
    }

    /// The instruction is checked: what was changed before it no longer matters.
    #[inline(always)]
    pub(super) fn settle(&mut self) {
        self.changed = 0;
    }

    /// There is nothing to check: the frame has no caller, or is not known.
    pub(super) fn clear(&mut self) {
        self.set = NONE;
        self.wrong = 0;
        self.judged = [Judged::NOTHING; UNWINDERS_MAX];
    }

    /// An instruction is not checked: nothing is known of its outcome, and any memory may be a slot. So
    /// far only tests leave checks out.
    #[cfg(test)]
    pub(super) fn give_up(&mut self) {
        self.clear();
        self.no_table = 0;
        self.slots = EVERYWHERE;
    }

    /// Checks the claims of `known` in the frame `held`, except those that do not have the common shape.
    #[inline]
    pub(super) fn judge(
        &mut self,
        core: &Core,
        held: &ShadowFrame,
        (code, known): (&Code, &Set),
        unwinders: usize,
        work: &mut Work,
    ) {
        // The outcome stays unknown until it is computed.
        self.set = NONE;
        self.wrong = 0;

        let gpr = |number| core.state.gpr(number);
        // Then the same words are read in the same frame: only registers may have changed.
        let same_slots = self.elide && self.changed & (claim::FRAME | claim::SLOTS) == 0;
        work.frames += 1;

        for which in 0..unwinders {
            let number = known.claims[which];
            let last = &self.judged[which];
            let same = last.claim == number && self.changed & known.depends_by[which] == 0;
            // Neither the claim nor what it depends on has changed, so the outcome has not either.
            if same && self.elide {
                self.wrong |= u8::from(last.wrong != 0) << which;
                continue;
            }

            match code.claim(number) {
                Claim::Simple(simple) => {
                    let before = code.claim(last.claim);
                    let outcome = match (known.part_of[which], before) {
                        // An unwinder before this one claims the same and more, and was just
                        // judged.
                        (Some((other, part)), _) if self.elide => {
                            self.judged[usize::from(other)].part(part)
                        }
                        (_, Claim::Simple(before)) if same_slots => {
                            work.parts += 1;
                            let before = (before, last, self.changed);
                            simple.judge_again(&gpr, &core.memory, held, before)
                        }
                        _ => {
                            work.whole += 1;
                            simple.judge(&gpr, &core.memory, held)
                        }
                    };
                    self.judged[which].set(number, simple, outcome);
                }
                Claim::Missing => {
                    self.judged[which] = Judged::without_cfa(number, claim::NOTHING);
                }
                Claim::NoTable => self.judged[which] = Judged::without_cfa(number, 0),
                // `judge_slow` checks these afterwards, in full.
                Claim::Slow => self.judged[which] = Judged::NOTHING,
            }

            let judged = &self.judged[which];
            self.wrong |= u8::from(judged.wrong != 0) << which;
        }

        self.depends = known.depends;
        self.no_table = known.no_table;
        self.key = Key::new(self.wrong, |which| self.judged[which].wrong);
    }

    /// The claim of an unwinder that does not have the common shape was checked.
    pub(super) fn judge_slow(&mut self, which: usize, wrong: claim::Wrong) {
        self.judged[which] = Judged::without_cfa(NONE, wrong);
        self.wrong |= u8::from(wrong != 0) << which;
    }

    /// Makes the outcome of an unwinder that of another claim, too.
    #[inline(always)]
    pub(super) fn carry(&mut self, which: usize, number: u32, simple: &Simple) {
        let judged = &mut self.judged[which];
        if judged.claim != number {
            judged.set(number, simple, (judged.wrong, judged.cfa));
        }
    }

    /// Every claim of the set has the outcome: it depends on what they depend on, in these slots.
    #[inline(always)]
    pub(super) fn carried(&mut self, set: u32, depends: Parts, slots: Guard) {
        self.set = set;
        self.depends = depends;
        self.slots = slots;
    }
}
