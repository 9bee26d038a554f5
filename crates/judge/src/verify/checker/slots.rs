//! Stores into live slots. They are found before the storing instruction is executed, and examined
//! after it.
//!
//! A slot is live if the shadow stack has it as a return address, or if a callee-saved register of
//! a caller is in it, both according to the row in force and in truth. Stores are determined from
//! operands; for system calls the innermost frames are compared.

use super::Checker;
use super::mapped::Mapped;
use super::stacks::Stacks;
use crate::verify::claim::{self, Claim};
use crate::verify::code::{Code, HOOK};
use crate::verify::findings::Findings;
use crate::verify::places::NOWHERE;
use crate::verify::stores::{Collector, Hit, Slot, SlotStores, Writer};
use std::ops::Range;
use unwind_sim_emulator::effects::Stores as Operands;
use unwind_sim_emulator::linux::SystemCall;
use unwind_sim_emulator::{AddressSpace, Core};
use unwind_sim_unwind::insn::Insn;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::truth::{ShadowFrame, TrueKind};

/// The number of innermost frames that are compared at a system call.
const FRAMES_AT_CALL: usize = 8;
/// The maximum number of return addresses that one store can hit.
const HITS_MAX: usize = 64;

/// Stores into live slots.
///
/// `hits` are the slots into which the instruction that is being executed will store; it is empty
/// between instructions. What they held is noted before, and what they hold after.
#[derive(Default)]
pub(super) struct Stores {
    hits: Vec<Hit>,
    /// Of a kernel, the saved registers of interrupted code into which it will store, and what they are.
    trapped: Vec<(u64, u64)>,
    all: Collector,
}

/// What says which slots are live.
struct Live<'a> {
    memory: &'a AddressSpace,
    stacks: &'a Stacks,
    code: &'a Code,
    findings: &'a Findings,
    /// The unwinder whose rows say where registers are saved.
    carries_all: Option<usize>,
    /// The set of claims at the instruction.
    set: u32,
}

impl Stores {
    /// Forgets the slots of an instruction that was not executed.
    pub(super) fn forget(&mut self) {
        self.hits.clear();
        self.trapped.clear();
    }

    /// Whether the instruction that is being executed may have changed a live slot.
    #[inline(always)]
    pub(super) fn are_pending(&self) -> bool {
        !self.hits.is_empty() || !self.trapped.is_empty()
    }

    /// Whether there is a changed return address that may still be used.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.all.is_waiting()
    }

    /// Notes whether execution returned by a slot that was changed. rsp was `rsp` before the
    /// instruction, and the next one is at `next`.
    #[cold]
    pub(super) fn returned(&mut self, class: Insn, rsp: u64, next: u64) {
        match class {
            Insn::Ret => self.all.returned(rsp, next),
            // The return address was popped before, as in `__builtin_eh_return`.
            Insn::JumpIndirect => self.all.returned(rsp.wrapping_sub(8), next),
            _ => {}
        }
    }

    /// The instruction was executed: records what it has put into the slots that it hit.
    fn settle(
        &mut self,
        memory: &AddressSpace,
        (writer, number): (Writer, u64),
        mapped: &mut Mapped,
        stacks: &mut Stacks,
        findings: &mut Findings,
    ) {
        for mut hit in self.hits.drain(..) {
            let Ok(new) = memory.read_u64(hit.address) else {
                continue;
            };
            // The running function stored into its own frame, and no return address says where it
            // is.
            if hit.owner == 0 {
                hit.owner = writer.address;
            } else if let Slot::Saved(number) = hit.slot
                && new != hit.old
            {
                let reg = Reg::CALLEE_SAVED[usize::from(number)];
                let owner = stacks.activation(Some(hit.frame));
                findings.overwrite(owner, reg, new);
            }
            hit.owner_place = mapped.place(hit.owner);
            let frames = stacks.tracker.frames().iter().rev();
            let mut interrupted = frames.filter(|held| held.kind == TrueKind::Interrupted);
            match hit.slot {
                // A signal handler changed the address that it will return to.
                Slot::ReturnAddress if interrupted.any(|held| held.slot == hit.address) => {
                    stacks.tracker.redirect(hit.address, new);
                }
                _ if hit.is_live => {
                    if hit.slot == Slot::ReturnAddress {
                        let is_taken = stacks.code.trampolines.contains(&new);
                        stacks.tracker.take_return(hit.address, is_taken);
                    }
                    self.all.add(&hit, writer, number, new);
                }
                _ => {}
            }
        }
    }

    /// All stores of the run.
    pub(super) fn finish(self) -> SlotStores {
        self.all.finish()
    }

    /// The slots that are being stored into.
    #[cfg(test)]
    pub(super) fn hits(&mut self) -> &mut Vec<Hit> {
        &mut self.hits
    }
}

impl Checker<'_> {
    /// Handles a push, whose slot is not among an instruction's stores. It hits a slot only if a
    /// claim names one that is not in use.
    #[inline]
    pub(super) fn about_to_push(&mut self, core: &Core, set: u32) {
        let rsp = core.state.gpr(4);
        let pushes = matches!(
            self.current.class,
            Insn::Push | Insn::Pushf | Insn::Call { .. }
        );
        let from = match self.current.class {
            _ if pushes => rsp.saturating_sub(8),
            // It stores nothing.
            Insn::Pop => rsp,
            _ => 0,
        };
        if self.outcome.slots.covers(from, rsp.wrapping_sub(from)) {
            self.outcome.change(claim::SLOTS);
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
            // What stores nothing may still push: then it has changed rsp.
            Operands::Nothing if self.outcome.changed & claim::RSP == 0 => {}
            Operands::Nothing => self.about_to_push(core, set),
            Operands::String(elements) => {
                let range = elements.range(core);
                if self
                    .outcome
                    .slots
                    .covers(range.start, range.end.wrapping_sub(range.start))
                {
                    self.store(core, set, range);
                }
            }
            // Nothing says where it stores, so no slot that was read before is known any more.
            Operands::Anything => {
                self.outcome.change(claim::SLOTS);
                if self.current.class == Insn::Syscall {
                    self.before_call(core, set);
                }
            }
            Operands::At(operand) => {
                let address = operand.address(core);
                let end = address.wrapping_add(operand.size.into());
                if self.outcome.slots.covers(address, operand.size.into()) {
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
        let tracker = &self.stacks.tracker;
        if self.kernel.is_some() && !tracker.is_on_one_stack() {
            let word = |at| Some((at, core.memory.read_u64(at).ok()?));
            let words = tracker.trapped_words(&range).filter_map(word);
            self.stores.trapped.extend(words);
        }
        let frames = tracker.frames();
        let is_outside = frames.first().is_none_or(|held| range.start >= held.cfa);
        // A wrong row may read above all frames.
        if !is_outside || self.outcome.is_read(&range, self.unwinders.len()) {
            self.outcome.change(claim::SLOTS);
        }
        // Outside of all frames there is no live slot, and while the truth is in doubt, none is
        // known.
        if is_outside || tracker.in_doubt() {
            return;
        }
        let live = Live {
            memory: &core.memory,
            stacks: &self.stacks,
            code: &self.code,
            findings: &self.findings,
            carries_all: self.unwinders.carries_all,
            set,
        };
        for part in tracker.stacks() {
            live.hits_in(&range, part, &mut self.stores.hits);
        }
    }

    /// Before a system call: finds what the kernel may write.
    #[cold]
    fn before_call(&mut self, core: &Core, set: u32) {
        let tracker = &self.stacks.tracker;
        if tracker.in_doubt() {
            return;
        }
        let live = Live {
            memory: &core.memory,
            stacks: &self.stacks,
            code: &self.code,
            findings: &self.findings,
            carries_all: self.unwinders.carries_all,
            set,
        };
        let frames = tracker.frames();
        for index in (0..frames.len()).rev().take(FRAMES_AT_CALL) {
            let ShadowFrame { slot, cfa, .. } = frames[index];
            let from = frames
                .get(index + 1)
                .map_or(core.state.gpr(4), |held| held.cfa);
            let range = from.min(slot)..cfa;
            live.hits_in(&range, index..index + 1, &mut self.stores.hits);
        }
    }

    /// After the storing instruction at `rip`: records its hits.
    #[cold]
    pub(super) fn stored(&mut self, core: &Core, rip: u64) {
        let writer = Writer {
            address: rip,
            place: self.mapped.place(rip),
            call: None,
        };
        self.settle_stores(core, writer, self.counts.executed);
        self.settle_trapped(core);
    }

    /// After an instruction that has stored into saved registers of interrupted code, which goes on with
    /// these.
    fn settle_trapped(&mut self, core: &Core) {
        if self.stores.trapped.is_empty() {
            return;
        }
        for (address, old) in self.stores.trapped.drain(..) {
            if let Ok(new) = core.memory.read_u64(address) {
                self.stacks.rewrite_trapped(address, (old, new), core);
            }
        }
        self.outcome.change_all();
    }

    /// After a system call: records its hits.
    pub(super) fn called(&mut self, core: &Core, call: &SystemCall) {
        let rip = self.current.before.rip;
        let writer = Writer {
            address: rip,
            place: self.mapped.place(rip),
            call: Some(call.name),
        };
        self.settle_stores(core, writer, self.counts.executed.saturating_sub(1));
    }

    fn settle_stores(&mut self, core: &Core, writer: Writer, number: u64) {
        self.stores.settle(
            &core.memory,
            (writer, number),
            &mut self.mapped,
            &mut self.stacks,
            &mut self.findings,
        );
    }
}

impl Live<'_> {
    /// Finds the slots of the frames `part` that a store into `range` hits.
    #[inline]
    fn hits_in(&self, range: &Range<u64>, part: Range<usize>, hits: &mut Vec<Hit>) {
        let frames = self.stacks.tracker.frames();
        let inner = frames[part.clone()].partition_point(|held| held.slot >= range.end);
        let inner = part.start + inner;

        // The function with the next slot above, and those whose slots are hit.
        if inner > part.start {
            self.saved_hits(range, inner - 1, hits);
        }

        for index in (inner..part.end).take(HITS_MAX) {
            // Slots get lower from frame to frame, so the first one below the range ends the
            // search.
            let held = &frames[index];
            if held.slot.saturating_add(8) <= range.start {
                return;
            }

            if held.is_in_memory()
                && let Ok(old) = self.memory.read_u64(held.slot)
            {
                hits.push(Hit {
                    address: held.slot,
                    old,
                    slot: Slot::ReturnAddress,
                    is_live: true,
                    frame: index,
                    owner: self.stacks.pc_in(index),
                    owner_place: NOWHERE,
                });
            }

            self.saved_hits(range, index, hits);
        }
    }

    /// Finds the hit slots of saved registers, for the function that returns by frame `index`.
    #[inline]
    fn saved_hits(&self, range: &Range<u64>, index: usize, hits: &mut Vec<Hit>) {
        let frames = self.stacks.tracker.frames();

        // The row that is in force: in the innermost frame at the instruction, else at the call of
        // the next frame.
        let set = if index + 1 < frames.len() {
            self.stacks.claims_at_call(index + 1)
        } else {
            Some(self.set)
        };

        let set = set.and_then(|set| self.code.set(set));
        let (Some(which), Some(set)) = (self.carries_all, set) else {
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
            let Ok(old) = self.memory.read_u64(address) else {
                continue;
            };

            // Or one that another function has put there.
            let is_overwritten = || {
                let reg = Reg::CALLEE_SAVED[usize::from(number)];
                let owner = self.stacks.activation(Some(index));
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
                    owner: self.stacks.pc_in(index),
                    owner_place: NOWHERE,
                });
            }
        }
    }
}
