//! What a handler in ring 0 does with the saved registers of the code that was interrupted: it may change
//! where that goes on. Linux does so where a table of exceptions mends a fault, behind a `ud2` that only
//! warns, and for the instruction that an `int3` stands for.
//!
//! Until `iret`, the saved registers say what the interrupted frame is.

use super::Tracker;
use crate::insn::INSN_BYTES_MAX;
use crate::pt_regs::{IRET_FRAME_LEN, IRET_FRAME_OFFSET, offset_of};
use crate::regs::Reg;
use crate::truth::TrueKind;
use crate::truth::stacks::{Cpu, ShadowFrame, World};
use core::ops::Range;

/// How far entry code copies the frame that `iret` pops, bytes: that of an NMI has room for two more
/// (Linux `asm_exc_nmi`).
pub(super) const COPIED_MAX: u64 = 128;

/// A saved register of interrupted code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Word {
    Pc,
    Sp,
    /// The index in [`Reg::CALLEE_SAVED`].
    Saved(usize),
}

impl Word {
    const ALL: [Word; 8] = [
        Word::Pc,
        Word::Sp,
        Word::Saved(0),
        Word::Saved(1),
        Word::Saved(2),
        Word::Saved(3),
        Word::Saved(4),
        Word::Saved(5),
    ];

    /// Its address, if the saved rip is at `slot` (Linux `struct pt_regs`).
    const fn address(self, slot: u64) -> u64 {
        let reg = match self {
            Word::Pc => Reg::Rip,
            Word::Sp => Reg::Rsp,
            Word::Saved(index) => Reg::CALLEE_SAVED[index],
        };
        slot.wrapping_add(offset_of(reg))
            .wrapping_sub(IRET_FRAME_OFFSET)
    }

    /// The register, as it is known.
    const fn value(self, held: &mut ShadowFrame) -> &mut u64 {
        match self {
            Word::Pc => &mut held.pc,
            Word::Sp => &mut held.cfa,
            Word::Saved(index) => &mut held.saved[index],
        }
    }
}

impl Tracker {
    /// The segments of handlers that interrupts have entered, outermost first.
    fn trapped(&self) -> impl DoubleEndedIterator<Item = (usize, &ShadowFrame)> + '_ {
        let first = |(index, at): (usize, usize)| Some((index, self.chain.frames.get(at)?));
        let firsts = self.chain.segments.iter().map(|s| s.first).enumerate();
        firsts
            .filter_map(first)
            .filter(|(_, held)| held.kind == TrueKind::Trapped)
    }

    /// The words of saved registers of interrupted code that a store into `range` writes.
    pub fn trapped_words<'a>(&'a self, range: &'a Range<u64>) -> impl Iterator<Item = u64> + 'a {
        let is_near = |held: &ShadowFrame| {
            let end = held.slot.saturating_add(IRET_FRAME_LEN);
            range.start < end && held.slot.saturating_sub(IRET_FRAME_OFFSET) < range.end
        };
        let slots = self.trapped().map(|(_, held)| held);
        let slots = slots.filter(move |held| is_near(held)).map(|h| h.slot);
        let words = slots.flat_map(|slot| Word::ALL.map(|word| word.address(slot)));
        words.filter(|&word| word < range.end && range.start < word.saturating_add(8))
    }

    /// The word at `address` was written, which was `old`. If it was a saved register of interrupted code,
    /// that will go on with `new`.
    pub fn rewrite_trapped(&mut self, address: u64, (old, new): (u64, u64), world: &mut dyn World) {
        let at = |held: &ShadowFrame| {
            let mut words = Word::ALL.into_iter();
            words.find(|word| word.address(held.slot) == address)
        };
        let mut found = self.trapped().rev();
        let Some((segment, word)) = found.find_map(|(index, held)| Some((index, at(held)?))) else {
            return;
        };
        drop(found);

        // What entry code has not saved yet is another word.
        let first = self.chain.segments[segment].first;
        let held = &mut self.chain.frames[first];
        let value = word.value(held);
        if *value != old || old == new {
            return;
        }
        *value = new;
        held.rewritten = true;
        let held = *held;

        let Some(outer) = segment.checked_sub(1) else {
            return;
        };
        match word {
            Word::Saved(_) => {}
            Word::Sp => {
                self.chain.segments[outer].low = new;
                self.return_interrupted(outer, new);
            }
            Word::Pc => self.call_interrupted(outer, old, &held, world),
        }
        self.settle();
    }

    /// The handler has taken a return address off the interrupted stack, for a `ret` that it executes in
    /// place of the interrupted code (Linux `int3_emulate_ret`).
    fn return_interrupted(&mut self, outer: usize, sp: u64) {
        let first = self.chain.segments[outer + 1].first;
        let is_returned = first > self.chain.segments[outer].first
            && self.chain.frames[first - 1].slot == sp.wrapping_sub(8);
        if !is_returned {
            return;
        }

        self.chain.frames.remove(first - 1);
        for segment in &mut self.chain.segments[outer + 1..] {
            segment.first -= 1;
        }
        // Words of the function that has returned are gone.
        self.planted.retain(|planted| planted.frames() != first);
        self.chain.doubts.retain(|doubt| doubt.frames != first);
        self.renumber(first, |frames| frames - 1);
        self.stats.returns += 1;
    }

    /// The handler of `held`, whose pc was `old`, lets the interrupted code go on elsewhere. If it has put a
    /// return address behind `old` on the interrupted stack, it has executed a call in place of that code
    /// (Linux `int3_emulate_call`).
    fn call_interrupted(
        &mut self,
        outer: usize,
        old: u64,
        held: &ShadowFrame,
        world: &mut dyn World,
    ) {
        let first = self.chain.segments[outer + 1].first;
        let is_known = self.chain.segments[outer].first < first
            && self.chain.frames[first - 1].slot == held.cfa;
        let pc = world.word(held.cfa);
        // The saved rip is behind the `int3`, which is the first byte of the call.
        let is_behind = |&pc: &u64| pc.wrapping_sub(old) < INSN_BYTES_MAX as u64;
        let Some(pc) = pc.filter(is_behind).filter(|_| !is_known) else {
            return;
        };

        let call = ShadowFrame {
            slot: held.cfa,
            cfa: held.cfa.wrapping_add(8),
            pc,
            saved: held.saved,
            kind: TrueKind::Call,
            rewritten: false,
            taken: false,
            thunk: false,
            in_register: false,
            planted: false,
            entry: held.pc,
        };
        self.chain.frames.insert(first, call);
        for segment in &mut self.chain.segments[outer + 1..] {
            segment.first += 1;
        }
        self.renumber(first, |frames| frames + 1);
        self.stats.calls += 1;
    }

    /// Changes the numbers of frames that are more than `first`.
    fn renumber(&mut self, first: usize, number: impl Fn(usize) -> usize) {
        for planted in &mut self.planted {
            planted.renumber(first, &number);
        }
        for doubt in self.chain.doubts.iter_mut().filter(|d| d.frames > first) {
            doubt.frames = number(doubt.frames);
        }
    }

    /// A push in a handler: entry code may have copied the frame that `iret` pops, to make room for a call
    /// (Linux `idtentry`), or to be able to begin again (`asm_exc_nmi`). Then the last copy is the one.
    pub(super) fn follow_copy(&mut self, after: &Cpu, world: &mut dyn World) {
        let at = after.rsp;
        let top = self.top_mut().filter(|top| top.kind == TrueKind::Trapped);
        let Some(top) = top.filter(|top| top.slot != at && top.slot.abs_diff(at) <= COPIED_MAX)
        else {
            return;
        };
        let mut is = |reg: Reg, value: u64| {
            let offset = offset_of(reg) - IRET_FRAME_OFFSET;
            world.word(at.wrapping_add(offset)) == Some(value)
        };
        if is(Reg::Rip, top.pc) && is(Reg::Rsp, top.cfa) {
            top.slot = at;
            self.settle();
        }
    }

    /// Whether rsp rises to `sp` over a copy of the frame that `iret` pops, but not over the frame itself.
    pub(super) fn leaves_copy(&mut self, sp: u64) -> bool {
        let high = self.chain.last().high;
        let top = self.top_mut().filter(|top| top.kind == TrueKind::Trapped);
        let Some(top) = top.filter(|top| top.slot < sp && sp <= high) else {
            return false;
        };
        top.slot = high;
        self.settle();
        true
    }
}
