//! Stores into live slots. They are found before the storing instruction is executed, and examined
//! after it.
//!
//! A slot is live if the shadow stack has it as a return address, or if a callee-saved register of
//! a caller is in it, both according to the row in force and in truth. Stores are determined from
//! operands; for system calls the innermost frames are compared.

use super::{Checker, claim};
use crate::verify::claim::Claim;
use crate::verify::code::HOOK;
use crate::verify::departures::Activation;
use crate::verify::numbered::NONE;
use crate::verify::places::NOWHERE;
use crate::verify::stores::{Hit, Slot, Writer};
use std::ops::Range;
use unwind_sim_emulator::effects::Stores;
use unwind_sim_emulator::linux::SystemCall;
use unwind_sim_emulator::{AddressSpace, Core};
use unwind_sim_unwind::insn::Insn;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::truth::{ShadowFrame, TrueKind};

/// The number of innermost frames that are compared at a system call.
const FRAMES_AT_CALL: usize = 8;
/// The maximum number of return addresses that one store can hit.
const HITS_MAX: usize = 64;

/// The claims of a call's row, for the frame that the call created.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    /// The slot of the frame's return address.
    slot: u64,
    /// The claims, as the number of a set in [`crate::verify::code::Code`].
    inside: u32,
    /// The number of the call's instruction.
    number: u64,
}

const NO_SITE: Site = Site {
    slot: 0,
    inside: NONE,
    number: 0,
};

impl Checker<'_> {
    /// Records the call that created the innermost frame. `inside` is the set of claims of its row.
    #[inline]
    pub(super) fn note_site(&mut self, inside: u32) {
        let frames = self.tracker.frames();
        let Some(callee) = frames.last() else { return };
        let slot = callee.slot;
        self.sites.resize(frames.len() - 1, NO_SITE);
        // The call is already counted.
        let number = self.number.saturating_sub(1);
        self.sites.push(Site {
            slot,
            inside,
            number,
        });
    }

    /// The call of the function that returns by frame `index`.
    #[inline]
    pub(super) fn activation(&self, index: Option<usize>) -> Activation {
        let index = index?;
        let (held, site) = (self.tracker.frames().get(index)?, self.sites.get(index)?);
        // This holds too while the return address is in a register.
        (held.cfa == site.slot.wrapping_add(8)).then_some(site.number)
    }

    /// Handles a push, whose slot is not among an instruction's stores. It hits a slot only if a
    /// claim names one that is not in use.
    #[inline]
    pub(super) fn about_to_push(&mut self, core: &Core, set: u32) {
        let rsp = core.state.gpr(4);
        let pushes = matches!(self.class, Insn::Push | Insn::Pushf | Insn::Call { .. });
        let from = match self.class {
            _ if pushes => rsp.saturating_sub(8),
            // It stores nothing.
            Insn::Pop => rsp,
            _ => 0,
        };
        if self.slots.are_in(from, rsp) {
            self.changed |= claim::SLOTS;
            if pushes {
                self.store(core, set, from..rsp);
            }
        }
    }

    /// Handles the stores of the next instruction, which is at `rip`. `effect` is the number of its
    /// effect.
    #[inline]
    pub(super) fn about_to_store(&mut self, core: &Core, rip: u64, set: u32, effect: u32) {
        if effect & HOOK != 0 {
            self.entered_hook(core, rip);
        }
        match self.code.effect(effect & !HOOK).stores {
            Stores::Nothing if self.changed & claim::RSP == 0 => {}
            Stores::Nothing => self.about_to_push(core, set),
            Stores::String(elements) => {
                let range = elements.range(core);
                if self.slots.are_in(range.start, range.end) {
                    self.store(core, set, range);
                }
            }
            Stores::Anything => {
                self.changed |= claim::SLOTS;
                if self.class == Insn::Syscall {
                    self.before_call(core, set);
                }
            }
            Stores::At(operand) => {
                let address = operand.address(core);
                let end = address.wrapping_add(operand.size.into());
                if self.slots.are_in(address, end) {
                    self.store(core, set, address..end);
                }
            }
        }
    }

    /// Handles a store into slots that claims read, or above the lowest one of the innermost frame.
    /// `set` is the set of claims at the instruction.
    #[inline(never)]
    pub(super) fn store(&mut self, core: &Core, set: u32, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let frames = self.tracker.frames();
        let is_outside = frames.first().is_none_or(|held| range.start >= held.cfa);
        // A wrong row may read above all frames.
        if !is_outside || self.is_read(&range) {
            self.changed |= claim::SLOTS;
        }
        if is_outside || self.tracker.in_doubt() {
            return;
        }
        let mut hits = std::mem::take(&mut self.hits);
        for part in self.tracker.stacks() {
            self.hits_in(&core.memory, set, &range, part, &mut hits);
        }
        self.hits = hits;
    }

    /// Finds the slots of the frames `part` that a store into `range` hits.
    #[inline]
    fn hits_in(
        &self,
        memory: &AddressSpace,
        set: u32,
        range: &Range<u64>,
        part: Range<usize>,
        hits: &mut Vec<Hit>,
    ) {
        let frames = self.tracker.frames();
        let inner = frames[part.clone()].partition_point(|held| held.slot >= range.end);
        let inner = part.start + inner;

        // The function with the next slot above, and those whose slots are hit.
        if inner > part.start {
            self.saved_hits(memory, set, range, inner - 1, hits);
        }

        for index in (inner..part.end).take(HITS_MAX) {
            // Slots get lower from frame to frame, so the first one below the range ends the
            // search.
            let held = &frames[index];
            if held.slot.saturating_add(8) <= range.start {
                return;
            }

            if held.is_in_memory()
                && let Ok(old) = memory.read_u64(held.slot)
            {
                hits.push(Hit {
                    address: held.slot,
                    old,
                    slot: Slot::ReturnAddress,
                    is_live: true,
                    frame: index,
                    owner: self.pc_in(index),
                    owner_place: NOWHERE,
                });
            }

            self.saved_hits(memory, set, range, index, hits);
        }
    }

    /// Finds the hit slots of saved registers, for the function that returns by frame `index`.
    #[inline]
    fn saved_hits(
        &self,
        memory: &AddressSpace,
        set: u32,
        range: &Range<u64>,
        index: usize,
        hits: &mut Vec<Hit>,
    ) {
        let frames = self.tracker.frames();

        // The row that is in force: in the innermost frame at the instruction, else at the call of
        // the next frame.
        let set = match (frames.get(index + 1), self.sites.get(index + 1)) {
            (None, _) => set,
            (Some(callee), Some(site)) if site.slot == callee.slot => site.inside,
            _ => return,
        };

        let (Some(which), Some(set)) = (self.carries_all, self.code.set(set)) else {
            return;
        };
        let Claim::Simple(simple) = self.code.claim(set.claims[which]) else {
            return;
        };

        let held = &frames[index];
        for (number, address) in simple.saved_in(held.cfa, range) {
            // A slot that does not hold the value is not live. That the row is wrong is found
            // elsewhere.
            let truth = held.saved[usize::from(number)];
            let Ok(old) = memory.read_u64(address) else {
                continue;
            };

            // Or one that another function has put there.
            let is_overwritten = || {
                let reg = Reg::CALLEE_SAVED[usize::from(number)];
                let owner = self.activation(Some(index));
                let overwritten = self.findings.overwritten.value(owner, reg);
                overwritten == Some(old)
            };

            if old == truth || is_overwritten() {
                hits.push(Hit {
                    address,
                    old,
                    slot: Slot::Saved(number),
                    is_live: old == truth,
                    frame: index,
                    owner: self.pc_in(index),
                    owner_place: NOWHERE,
                });
            }
        }
    }

    /// A pc in the function that returns by frame `index`; 0 for the running function.
    fn pc_in(&self, index: usize) -> u64 {
        let callee = self.tracker.frames().get(index + 1);
        callee.map_or(0, |held| held.pc.wrapping_sub(1))
    }

    /// Before a system call: finds what the kernel may write.
    #[cold]
    pub(super) fn before_call(&mut self, core: &Core, set: u32) {
        if self.tracker.in_doubt() {
            return;
        }
        let frames = self.tracker.frames();
        let mut hits = std::mem::take(&mut self.hits);
        for index in (0..frames.len()).rev().take(FRAMES_AT_CALL) {
            let ShadowFrame { slot, cfa, .. } = frames[index];
            let from = frames
                .get(index + 1)
                .map_or(core.state.gpr(4), |held| held.cfa);
            self.hits_in(
                &core.memory,
                set,
                &(from.min(slot)..cfa),
                index..index + 1,
                &mut hits,
            );
        }
        self.hits = hits;
    }

    /// Checks whether execution returned by a slot that was changed.
    #[cold]
    pub(super) fn returned(&mut self, class: Insn, next: u64) {
        let rsp = self.before.rsp;
        match class {
            Insn::Ret => self.stores.returned(rsp, next),
            // The return address was popped before, as in `__builtin_eh_return`.
            Insn::JumpIndirect => self.stores.returned(rsp.wrapping_sub(8), next),
            _ => {}
        }
    }

    /// After the storing instruction at `rip`: records its hits.
    #[cold]
    pub(super) fn stored(&mut self, core: &Core, rip: u64) {
        let writer = Writer {
            address: rip,
            place: self.places.at(&self.space, rip),
            call: None,
        };
        self.settle(core, writer, self.number);
    }

    /// After a system call: records its hits.
    pub(super) fn called(&mut self, core: &Core, call: &SystemCall) {
        let writer = Writer {
            address: self.before.rip,
            place: self.places.at(&self.space, self.before.rip),
            call: Some(call.name),
        };
        self.settle(core, writer, self.number.saturating_sub(1));
    }

    fn settle(&mut self, core: &Core, writer: Writer, number: u64) {
        let mut hits = std::mem::take(&mut self.hits);
        for mut hit in hits.drain(..) {
            let Ok(new) = core.memory.read_u64(hit.address) else {
                continue;
            };
            if hit.owner == 0 {
                hit.owner = writer.address;
            } else if let Slot::Saved(number) = hit.slot
                && new != hit.old
            {
                let reg = Reg::CALLEE_SAVED[usize::from(number)];
                let owner = self.activation(Some(hit.frame));
                self.findings.overwrite(owner, reg, new);
            }
            hit.owner_place = self.places.at(&self.space, hit.owner);
            let frames = self.tracker.frames().iter().rev();
            let mut interrupted = frames.filter(|held| held.kind == TrueKind::Interrupted);
            match hit.slot {
                // A signal handler changed the address that it will return to.
                Slot::ReturnAddress if interrupted.any(|held| held.slot == hit.address) => {
                    self.tracker.redirect(hit.address, new);
                }
                _ if hit.is_live => self.stores.add(&hit, writer, number, new),
                _ => {}
            }
        }
        self.hits = hits;
    }
}
