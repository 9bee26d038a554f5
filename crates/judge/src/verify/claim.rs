//! What a rule claims about a frame, in a form that is checked in a few nanoseconds.
//!
//! Only rules of the common shape have this form: cfa = register + offset, and everything else
//! unchanged or on the stack. Other rules are checked by [`crate::check`], which also says what is
//! wrong with a rule of the common shape once it is found wrong.

use std::ops::Range;
use unwind_sim_emulator::AddressSpace;
use unwind_sim_emulator::effects::Stack;
use unwind_sim_unwind::regs::{Reg, RegMask};
use unwind_sim_unwind::rule::{Base, Rule, RuleKind, Value};
use unwind_sim_unwind::truth::ShadowFrame;

/// What is wrong, with a bit for each claim.
pub(super) type Wrong = u16;
/// The CFA.
pub(super) const CFA: Wrong = 1;
/// The return address.
pub(super) const RA: Wrong = 1 << 1;
/// The first callee-saved register; the others follow.
pub(super) const SAVED: Wrong = 1 << 2;
/// There is no row, or it gave nothing.
pub(super) const NOTHING: Wrong = 1 << 8;
/// A return address was taken for an interrupted instruction, or the other way round.
pub(super) const MISREAD: Wrong = 1 << 9;

/// The registers and memory that claims depend on, with a bit for each: the callee-saved registers
/// in their order, then rsp, all other registers, and the stack slots.
pub(super) type Parts = u16;
pub(super) const RSP: Parts = 1 << 6;
pub(super) const OTHER: Parts = 1 << 7;
pub(super) const SLOTS: Parts = 1 << 8;
/// The frame itself.
pub(super) const FRAME: Parts = 1 << 9;
pub(super) const ALL: Parts = u16::MAX;

/// The part of each general register, by hardware number.
pub(super) const PART_OF: [Parts; 16] = {
    let mut parts = [OTHER; 16];
    parts[3] = 1;
    parts[5] = 1 << 1;
    parts[12] = 1 << 2;
    parts[13] = 1 << 3;
    parts[14] = 1 << 4;
    parts[15] = 1 << 5;
    parts[4] = RSP;
    parts
};

/// The hardware numbers of the callee-saved registers, in their order, and of rsp and rbp.
pub(super) const SAVED_NUMBERS: [usize; 6] = [3, 5, 12, 13, 14, 15];
const RSP_NUMBER: u8 = 4;
const RBP_NUMBER: u8 = 5;

/// What is claimed about a callee-saved register of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Saved {
    /// Nothing.
    Nothing,
    /// It has the same value as in the frame.
    Same,
    /// It is in the word at cfa + offset.
    At(i32),
}

/// The claims of a rule of the common shape.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Simple {
    /// The hardware number of the base register of the CFA.
    base: u8,
    /// Whether a walk carries the base register.
    carried: bool,
    /// Whether rbp = 0 means that there is no caller.
    ends_at_zero: bool,
    offset: i32,
    ra: i32,
    saved: [Saved; 6],
    /// The offset of the lowest slot from the CFA, in bytes.
    lowest: i32,
    /// The offset of the highest slot.
    highest: i32,
    depends: Parts,
}

/// The claim at an address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Claim {
    /// A rule of the common shape.
    Simple(Simple),
    /// A rule of another shape.
    Slow,
    /// There is no row.
    Missing,
    /// There is none in generated code, for which the program registered no table.
    NoTable,
}

/// The last checked claim of an unwinder and its result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    /// The number of the claim in [`super::code::Code::claims`]; [`super::numbered::NONE`] if there is
    /// none.
    pub(super) claim: u32,
    pub(super) wrong: Wrong,
    /// The CFA that it gave.
    pub(super) cfa: u64,
    /// The lowest slot that it names.
    pub(super) lowest: u64,
    /// The end of the highest one.
    pub(super) end: u64,
}

impl Judged {
    /// Nothing is known.
    pub(super) const NOTHING: Judged = Judged {
        claim: super::numbered::NONE,
        wrong: 0,
        cfa: 0,
        lowest: u64::MAX,
        end: 0,
    };

    /// Records the result of claim `number`, which is `simple`. It is written field by field,
    /// because a processor is slow to read as a whole what was just written in small parts.
    #[inline]
    pub(super) fn set(&mut self, number: u32, simple: &Simple, (wrong, cfa): (Wrong, u64)) {
        self.claim = number;
        self.wrong = wrong;
        self.cfa = cfa;
        self.lowest = cfa.wrapping_add_signed(simple.lowest.into());
        self.end = cfa.wrapping_add_signed(i64::from(simple.highest) + 8);
    }

    /// The result for a claim that is a part of this one: the wrong bits within `part`, and the
    /// CFA.
    #[inline]
    pub(super) fn part(&self, part: Wrong) -> (Wrong, u64) {
        (self.wrong & part, self.cfa)
    }

    /// The result of a claim that gives no CFA.
    pub(super) fn without_cfa(claim: u32, wrong: Wrong) -> Judged {
        Judged {
            claim,
            wrong,
            ..Judged::NOTHING
        }
    }
}

impl Claim {
    /// The claims of `rule` for an unwinder that carries the registers `carries`.
    pub(super) fn of(rule: &Rule, carries: RegMask) -> Claim {
        simple(rule, carries).map_or(Claim::Slow, Claim::Simple)
    }

    /// What the outcome depends on.
    pub(super) fn depends(&self) -> Parts {
        match self {
            Claim::Simple(simple) => simple.depends,
            Claim::Slow => ALL,
            Claim::Missing => FRAME | SLOTS,
            Claim::NoTable => FRAME,
        }
    }
}

fn simple(rule: &Rule, carries: RegMask) -> Option<Simple> {
    let Value::Offset {
        base: Base::Reg(base),
        offset,
    } = rule.cfa
    else {
        return None;
    };

    let slot = |value: Value| match value {
        Value::Load {
            base: Base::Cfa,
            offset,
            addend: 0,
        } => Some(offset),
        _ => None,
    };

    let by_rbp = !rule.by_frame_pointer || base == Reg::Rbp;

    // Any other rule is [`Claim::Slow`], which is checked in full.
    if rule.kind != RuleKind::Call || !rule.sp_is_cfa() || !by_rbp {
        return None;
    }

    let ra = slot(rule.ra)?;
    let number = hardware_number(base)?;
    // An outcome holds until one of these changes.
    let mut depends = FRAME | SLOTS | PART_OF[number as usize];
    // The range of all slots: a store outside of it cannot change the outcome.
    let (mut lowest, mut highest) = (ra, ra);
    let mut saved = [Saved::Nothing; 6];

    for (index, reg) in Reg::CALLEE_SAVED.into_iter().enumerate() {
        // A walk never has these registers, so what the rule says of them is not a claim.
        if !carries.contains(reg) {
            continue;
        }
        saved[index] = match rule.saved[index] {
            Value::Undefined => Saved::Nothing,
            // If the format has no word for a register, that is the claim that it is unchanged.
            Value::Same | Value::Unspecified => {
                depends |= 1 << index;
                Saved::Same
            }
            value => {
                let offset = slot(value)?;
                (lowest, highest) = (lowest.min(offset), highest.max(offset));
                Saved::At(offset)
            }
        };
    }

    Some(Simple {
        base: number,
        // rsp is there in every walk: it is the callee's CFA.
        carried: base == Reg::Rsp || carries.contains(base),
        ends_at_zero: rule.by_frame_pointer,
        offset,
        ra,
        saved,
        lowest,
        highest,
        depends,
    })
}

fn hardware_number(reg: Reg) -> Option<u8> {
    let at = Reg::BY_NUMBER.iter().position(|&r| r == reg)?;
    Some(at as u8)
}

impl Simple {
    /// The things it claims, as bits.
    fn claimed(&self) -> Wrong {
        let saved = self.saved.iter().enumerate();
        saved.fold(NOTHING | CFA | RA, |all, (index, saved)| match saved {
            Saved::Nothing => all,
            _ => all | SAVED << index,
        })
    }

    /// If it claims nothing that `other` does not claim, the bits of `other` that apply to it.
    pub(super) fn part_of(&self, other: &Simple) -> Option<Wrong> {
        let pairs = self.saved.iter().zip(&other.saved);
        let is_part = self.base == other.base
            && self.ends_at_zero == other.ends_at_zero
            && (self.offset, self.ra) == (other.offset, other.ra)
            && pairs.fold(true, |all, (&one, &two)| {
                all && (one == Saved::Nothing || one == two)
            });
        is_part.then(|| self.claimed())
    }

    /// Whether its outcome is that of `next`, the claims after an instruction that does `stack` with
    /// rsp, writes the registers `writes`, and stores to no slot that the claims name. Then the CFA is
    /// the same, too.
    pub(super) fn becomes(&self, next: &Simple, stack: Stack, writes: Parts) -> bool {
        let by_rsp = self.base == RSP_NUMBER;
        let same_cfa = match stack {
            // Where rbp is 0, one of them ends the walk and the other goes on.
            _ if self.ends_at_zero != next.ends_at_zero => false,
            // `mov %rsp, %rbp`: the base is another register, the CFA is the same.
            Stack::ToFramePointer if by_rsp && next.base == RBP_NUMBER => {
                !next.ends_at_zero && next.offset == self.offset
            }
            _ if next.base != self.base => false,
            _ if by_rsp => {
                // rsp has moved by a known number of bytes, and the offset must have moved with it.
                let is_known = stack != Stack::Other || writes & RSP == 0;
                is_known && i64::from(self.offset) - stack.moves() == i64::from(next.offset)
            }
            _ => next.offset == self.offset && writes & PART_OF[self.base as usize] == 0,
        };

        // Of a register that is pushed: right if the register was right before.
        let pairs = self.saved.iter().zip(&next.saved).enumerate();
        same_cfa
            && self.ra == next.ra
            && pairs.fold(true, |all, (index, (&old, &new))| {
                let is_written = writes & 1 << index != 0;
                let number = SAVED_NUMBERS[index] as u8;
                all && match (old, new) {
                    (Saved::Same, Saved::Same) => !is_written,
                    (Saved::Same, Saved::At(slot)) => {
                        by_rsp
                            && stack == Stack::Push(number)
                            && next.offset.checked_neg() == Some(slot)
                    }
                    (Saved::At(slot), Saved::Same) => {
                        by_rsp
                            && stack == Stack::Pop(number)
                            && self.offset.checked_neg() == Some(slot)
                    }
                    (old, new) => old == new,
                }
            })
    }

    /// Like [`Simple::judge`], after the check of `before` for the same unwinder in the same frame.
    /// Since then `changed` may have changed, but no slot.
    pub(super) fn judge_again(
        &self,
        gpr: &impl Fn(usize) -> u64,
        memory: &AddressSpace,
        caller: &ShadowFrame,
        (before, last, changed): (&Simple, &Judged, Parts),
    ) -> (Wrong, u64) {
        let base = gpr(self.base as usize);
        let cfa = base.wrapping_add_signed(self.offset.into());

        // Then the return address is in the same slot, into which nothing was stored.
        let same_slots = cfa == last.cfa
            && last.wrong & NOTHING == 0
            && self.ra == before.ra
            && !(self.ends_at_zero && base == 0);

        if !same_slots {
            return self.judge(gpr, memory, caller);
        }

        let mut wrong = last.wrong & (CFA | RA);
        for (index, saved) in self.saved.iter().enumerate() {
            // Nothing was stored into slots, so a saved register can differ only by another claim;
            // an unchanged one also by being written.
            let is_known = *saved == before.saved[index]
                && (*saved != Saved::Same || changed & 1 << index == 0);
            if is_known {
                wrong |= last.wrong & SAVED << index;
            } else if !self.saved_is_right(index, cfa, gpr, memory, caller) {
                wrong |= SAVED << index;
            }
        }

        (wrong, cfa)
    }

    /// Like [`Simple::wrong`], and also returns the CFA.
    pub(super) fn judge(
        &self,
        gpr: &impl Fn(usize) -> u64,
        memory: &AddressSpace,
        caller: &ShadowFrame,
    ) -> (Wrong, u64) {
        let cfa = gpr(self.base as usize).wrapping_add_signed(self.offset.into());
        (self.wrong(gpr, memory, caller), cfa)
    }

    #[inline]
    fn saved_is_right(
        &self,
        index: usize,
        cfa: u64,
        gpr: &impl Fn(usize) -> u64,
        memory: &AddressSpace,
        caller: &ShadowFrame,
    ) -> bool {
        match self.saved[index] {
            Saved::Nothing => true,
            Saved::Same => gpr(SAVED_NUMBERS[index]) == caller.saved[index],
            Saved::At(offset) => {
                let address = cfa.wrapping_add_signed(offset.into());
                memory.read_u64(address) == Ok(caller.saved[index])
            }
        }
    }

    /// What is wrong if the frame has these registers (by hardware number).
    #[inline]
    pub(super) fn wrong(
        &self,
        gpr: &impl Fn(usize) -> u64,
        memory: &AddressSpace,
        caller: &ShadowFrame,
    ) -> Wrong {
        let base = gpr(self.base as usize);
        // A walk takes this for the root, so the rule gives no caller.
        if self.ends_at_zero && base == 0 {
            return NOTHING;
        }

        let cfa = base.wrapping_add_signed(self.offset.into());
        let mut wrong = if cfa == caller.cfa { 0 } else { CFA };

        let slot = cfa.wrapping_add_signed(self.ra.into());
        match memory.read_u64(slot) {
            Ok(ra) if ra == caller.pc => {}
            // The word is a tracer's, which the kernel's unwinder exchanges for the return address.
            Ok(_) if caller.is_taken() && slot == caller.slot => {}
            // A walk takes this for its end.
            Ok(0) => return NOTHING,
            Ok(_) => wrong |= RA,
            Err(_) => return NOTHING,
        }

        for index in 0..self.saved.len() {
            if !self.saved_is_right(index, cfa, gpr, memory, caller) {
                wrong |= SAVED << index;
            }
        }

        wrong
    }

    /// Whether these bits say all about what is wrong but the values: each word can be read, so
    /// that there is no other reason.
    pub(super) fn is_plain(
        &self,
        wrong: Wrong,
        gpr: &impl Fn(usize) -> u64,
        memory: &AddressSpace,
    ) -> bool {
        // The distance from rbp of a frame pointer to the CFA: its cause is known by the CFA then.
        const FRAME_POINTER_OFFSET: i32 = 16;
        let cfa = gpr(self.base as usize).wrapping_add_signed(self.offset.into());
        let can_be_read = |saved: &Saved| match *saved {
            Saved::At(offset) => {
                let address = cfa.wrapping_add_signed(offset.into());
                memory.read_u64(address).is_ok()
            }
            Saved::Nothing | Saved::Same => true,
        };
        wrong & (NOTHING | MISREAD) == 0
            && (!self.ends_at_zero || self.offset == FRAME_POINTER_OFFSET)
            && self.saved.iter().all(can_be_read)
    }

    /// The lowest slot that it names.
    pub(super) fn lowest(&self, gpr: &impl Fn(usize) -> u64) -> u64 {
        let cfa = gpr(self.base as usize).wrapping_add_signed(self.offset.into());
        cfa.wrapping_add_signed(self.lowest.into())
    }

    /// The callee-saved registers, by number, whose slots a store into `range` touches in a frame
    /// with this CFA.
    #[inline]
    pub(super) fn saved_in(
        &self,
        cfa: u64,
        range: &Range<u64>,
    ) -> impl Iterator<Item = (u8, u64)> + use<'_> {
        let lowest = cfa.wrapping_add_signed(self.lowest.into());
        let range = range.clone();
        let saved = if range.end > lowest {
            &self.saved[..]
        } else {
            &[]
        };
        saved.iter().enumerate().filter_map(move |(index, saved)| {
            let Saved::At(offset) = *saved else {
                return None;
            };
            let address = cfa.wrapping_add_signed(offset.into());
            let touched = address < range.end && address.saturating_add(8) > range.start;
            touched.then_some((index as u8, address))
        })
    }

    /// Whether a walk coming from a callee with this CFA can apply it: the base is carried, and
    /// nothing is read below.
    pub(super) fn can_be_walked(&self, gpr: &impl Fn(usize) -> u64, callee_cfa: u64) -> bool {
        self.carried && self.lowest(gpr) >= callee_cfa
    }
}

#[cfg(test)]
mod tests;
