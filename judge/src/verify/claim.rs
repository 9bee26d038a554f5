//! What a rule claims of a frame, in a form that is checked in a few nanoseconds.
//!
//! Only the common shape has it: cfa = register + offset, everything else unchanged or on the
//! stack. All others are checked by [`crate::check`], which also says what is wrong with those of
//! the common shape once they are found to be.

use std::ops::Range;
use unwind_sim_emulator::AddressSpace;
use unwind_sim_unwind::memory::Memory;
use unwind_sim_unwind::regs::{Reg, RegMask};
use unwind_sim_unwind::rule::{Base, Rule, RuleKind, Value};
use unwind_sim_unwind::truth::Held;

/// What is wrong, a bit for each thing that was claimed.
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

/// Registers and memory that claims hang on, a bit for each: the callee-saved ones in their
/// order, then rsp, all others, and the stack slots.
pub(super) type Parts = u16;
pub(super) const RSP: Parts = 1 << 6;
pub(super) const OTHER: Parts = 1 << 7;
pub(super) const SLOTS: Parts = 1 << 8;
/// The frame itself is another.
pub(super) const FRAME: Parts = 1 << 9;
pub(super) const ALL: Parts = u16::MAX;

/// General registers by hardware number, as parts.
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

/// What is claimed of a callee-saved register of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Saved {
    /// Nothing.
    Nothing,
    /// It is what the frame has.
    Same,
    /// It is the word at cfa + offset.
    At(i32),
}

/// The claims of a rule of the common shape.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Simple {
    /// Hardware number of the register that the CFA counts from.
    base: u8,
    /// Is it one that a walk carries?
    carried: bool,
    /// rbp = 0 says that there is no caller.
    ends_at_zero: bool,
    offset: i32,
    ra: i32,
    saved: [Saved; 6],
    /// The lowest slot, from the CFA, bytes.
    lowest: i32,
    depends: Parts,
}

/// What is claimed at an address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Claim {
    /// The common shape.
    Simple(Simple),
    /// Another shape.
    Slow,
    /// There is no row.
    Missing,
}

/// What the check of an unwinder's last claim said, and of which.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    /// A number of [`super::code::Code::claims`]; [`super::code::NONE`] if it is not known.
    pub(super) claim: u32,
    pub(super) wrong: Wrong,
    /// The CFA that it gave.
    cfa: u64,
    /// The lowest slot that it names.
    pub(super) lowest: u64,
}

impl Judged {
    /// Nothing is known.
    pub(super) const NOTHING: Judged = Judged {
        claim: super::code::NONE,
        wrong: 0,
        cfa: 0,
        lowest: u64::MAX,
    };

    /// Remembers that claim `number`, which is `simple`, was judged. Field by field: what was just
    /// written in small parts a processor is slow to read as a whole.
    #[inline]
    pub(super) fn set(&mut self, number: u32, simple: &Simple, (wrong, cfa): (Wrong, u64)) {
        self.claim = number;
        self.wrong = wrong;
        self.cfa = cfa;
        self.lowest = cfa.wrapping_add_signed(simple.lowest.into());
    }

    /// What is wrong with a claim that is a part of this one's, of which `part` of what is wrong
    /// is wrong too, and its CFA.
    #[inline]
    pub(super) fn part(&self, part: Wrong) -> (Wrong, u64) {
        (self.wrong & part, self.cfa)
    }

    /// Of a claim that gives no CFA.
    pub(super) fn without_cfa(claim: u32, wrong: Wrong) -> Judged {
        Judged {
            claim,
            wrong,
            ..Judged::NOTHING
        }
    }
}

impl Claim {
    /// The claims of `rule`, of which an unwinder that carries `carries` makes use.
    pub(super) fn of(rule: &Rule, carries: RegMask) -> Claim {
        simple(rule, carries).map_or(Claim::Slow, Claim::Simple)
    }

    /// What its outcome hangs on.
    pub(super) fn depends(&self) -> Parts {
        match self {
            Claim::Simple(simple) => simple.depends,
            Claim::Slow => ALL,
            Claim::Missing => FRAME | SLOTS,
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
    if rule.kind != RuleKind::Call || rule.sp != Value::Unspecified || !by_rbp {
        return None;
    }
    let ra = slot(rule.ra)?;
    let number = hardware_number(base)?;
    let mut depends = FRAME | SLOTS | PART_OF[number as usize];
    let mut lowest = ra;
    let mut saved = [Saved::Nothing; 6];
    for (index, reg) in Reg::CALLEE_SAVED.into_iter().enumerate() {
        if !carries.contains(reg) {
            continue;
        }
        saved[index] = match rule.saved[index] {
            Value::Undefined => Saved::Nothing,
            // Having no word for it is the claim that it is unchanged.
            Value::Same | Value::Unspecified => {
                depends |= 1 << index;
                Saved::Same
            }
            value => {
                let offset = slot(value)?;
                lowest = lowest.min(offset);
                Saved::At(offset)
            }
        };
    }
    Some(Simple {
        base: number,
        carried: base == Reg::Rsp || carries.contains(base),
        ends_at_zero: rule.by_frame_pointer,
        offset,
        ra,
        saved,
        lowest,
        depends,
    })
}

fn hardware_number(reg: Reg) -> Option<u8> {
    let at = Reg::BY_NUMBER.iter().position(|&r| r == reg)?;
    Some(at as u8)
}

impl Simple {
    /// What it claims, as bits.
    fn claimed(&self) -> Wrong {
        let saved = self.saved.iter().enumerate();
        saved.fold(NOTHING | CFA | RA, |all, (index, saved)| match saved {
            Saved::Nothing => all,
            _ => all | SAVED << index,
        })
    }

    /// If it claims nothing that `other` does not claim: which of what is wrong with that is
    /// wrong with this.
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

    /// As [`Simple::wrong`], with the CFA, after the check of `before` by the same unwinder in the
    /// same frame. Since then `changed` may have changed, but no slot.
    pub(super) fn judge_again(
        &self,
        gpr: &impl Fn(usize) -> u64,
        memory: &AddressSpace,
        caller: &Held,
        (before, last, changed): (&Simple, &Judged, Parts),
    ) -> (Wrong, u64) {
        let base = gpr(self.base as usize);
        let cfa = base.wrapping_add_signed(self.offset.into());
        let same_slots = cfa == last.cfa
            && last.wrong & NOTHING == 0
            && self.ra == before.ra
            && !(self.ends_at_zero && base == 0);
        if !same_slots {
            return self.judge(gpr, memory, caller);
        }
        let mut wrong = last.wrong & (CFA | RA);
        for (index, saved) in self.saved.iter().enumerate() {
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

    /// As [`Simple::wrong`], with the CFA.
    pub(super) fn judge(
        &self,
        gpr: &impl Fn(usize) -> u64,
        memory: &AddressSpace,
        caller: &Held,
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
        caller: &Held,
    ) -> bool {
        const NUMBERS: [usize; 6] = [3, 5, 12, 13, 14, 15];
        match self.saved[index] {
            Saved::Nothing => true,
            Saved::Same => gpr(NUMBERS[index]) == caller.saved[index],
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
        caller: &Held,
    ) -> Wrong {
        let base = gpr(self.base as usize);
        if self.ends_at_zero && base == 0 {
            return NOTHING;
        }
        let cfa = base.wrapping_add_signed(self.offset.into());
        let mut wrong = if cfa == caller.cfa { 0 } else { CFA };
        match memory.read_u64(cfa.wrapping_add_signed(self.ra.into())) {
            Ok(ra) if ra == caller.pc => {}
            // What a walk takes for its end.
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

    /// The lowest slot that it names.
    pub(super) fn lowest(&self, gpr: &impl Fn(usize) -> u64) -> u64 {
        let cfa = gpr(self.base as usize).wrapping_add_signed(self.offset.into());
        cfa.wrapping_add_signed(self.lowest.into())
    }

    /// The slots of callee-saved registers, by their numbers, that a store into `range` touches in
    /// a frame with this CFA.
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

    /// Can a walk apply it that came from a callee with this CFA: is the base carried, and is
    /// nothing read below?
    pub(super) fn can_be_walked(&self, gpr: &impl Fn(usize) -> u64, callee_cfa: u64) -> bool {
        self.carried && self.lowest(gpr) >= callee_cfa
    }
}

#[cfg(test)]
mod tests;
