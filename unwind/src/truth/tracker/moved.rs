//! Return addresses that the program moves itself: popped into a register or memory, pushed again
//! elsewhere, and pushed in place of a call.
//!
//! An adapter between two calling conventions takes its return address off the stack, moves rsp,
//! and puts the address back (HotSpot between interpreted and compiled code, V8 to drop arguments).
//! An interpreter pushes the address at which it continues, jumps to the method, and the method
//! pops it and jumps back.

use super::{SWITCH_TABLE_REACH, Tracker};
use crate::insn::ends_with_call;
use crate::regs::SAVED_RBP;
use crate::truth::TrueKind;
use crate::truth::stacks::{Cpu, ShadowFrame, World};

/// What was pushed since the running function was entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SinceEntry {
    /// Nothing: rsp is where its return address is.
    At,
    /// One word.
    Pushed,
    /// More, or something was called.
    Past,
}

impl SinceEntry {
    pub(super) const fn after_push(self) -> SinceEntry {
        match self {
            SinceEntry::At => SinceEntry::Pushed,
            SinceEntry::Pushed | SinceEntry::Past => SinceEntry::Past,
        }
    }
}

/// Whether code in memory without a file has pushed an address of such code. One that is in a
/// callee-saved register is more likely saved there.
fn is_generated(pc: u64, before: &Cpu, world: &mut dyn World) -> bool {
    !before.saved.contains(&pc) && world.is_generated(before.rip) && world.is_generated(pc)
}

impl Tracker {
    /// A pop took only the return address off the stack (glibc's `vfork`): the frame continues in a
    /// register, unless the call only reads its own address, or what was popped may be data.
    pub(super) fn keep_in_register(&mut self, sp: u64, world: &mut dyn World) -> bool {
        if self.hides {
            return false;
        }
        let top = self.top_mut();
        let held = top.filter(|f| f.kind == TrueKind::Call && !f.thunk && !f.in_register);
        let Some(held) = held.filter(|f| sp == f.cfa) else {
            return false;
        };
        held.rewritten |= world.word(held.slot).is_some_and(|word| word != held.pc);
        held.slot = held.cfa;
        held.in_register = true;
        self.settle();
        true
    }

    /// Whether the innermost frame outlives a rise of rsp to `sp`, above its slot but not above
    /// that of its caller: because its return address is in a register, or was copied to `sp` (a
    /// tail call with more or fewer arguments on the stack).
    pub(super) fn outlives(&mut self, sp: u64, world: &mut dyn World) -> bool {
        let segment = self.chain.last();
        let Some((top, outer)) = self.chain.frames[segment.first..].split_last_mut() else {
            return false;
        };
        let end = outer.last().map_or(segment.high, |f| f.slot);
        if sp < top.cfa || sp > end || top.kind != TrueKind::Call || top.thunk {
            return false;
        }
        if top.in_register {
            (top.slot, top.cfa) = (sp, sp);
        } else if sp < end && world.word(sp) == Some(top.pc) {
            (top.slot, top.cfa) = (sp, sp.wrapping_add(8));
        } else {
            return false;
        }
        self.settle();
        true
    }

    /// A `ret` while a return address is in a register: it returns to that address, which was
    /// stored again without our notice; or it jumps, by another word; or the address was discarded.
    pub(super) fn return_from_register(&mut self, before: &Cpu, after: &Cpu) -> bool {
        let Some(held) = self.chain.top().copied().filter(|f| f.in_register) else {
            return false;
        };
        if held.pc != after.rip && after.rsp <= held.cfa {
            self.stats.trampolines += 1;
            self.leave_with_register((before.rip, after.rip));
            return true;
        }

        let frames = self.chain.frames[self.chain.last().first..].split_last();
        let outer = frames.and_then(|(_, outer)| outer.last());
        let returns = held.pc == after.rip && outer.is_none_or(|f| f.slot != before.rsp);
        let was_certain = held.planted && !self.hides;
        self.resolve(returns);
        self.chain.frames.pop();
        self.settle();
        self.stats.returns += u64::from(returns);
        self.stats.unheld += u64::from(!returns && was_certain);
        self.doubt &= !returns;
        returns
    }

    /// A jump while a return address is in a register. To that address, it is the return. Otherwise
    /// another function may have the address now, or it was discarded.
    pub(super) fn leave_by_register(
        &mut self,
        before: &Cpu,
        after: &Cpu,
        world: &mut dyn World,
    ) -> bool {
        let Some(held) = self.chain.top().copied().filter(|f| f.in_register) else {
            return false;
        };
        if held.pc == after.rip && held.cfa == after.rsp {
            self.resolve(true);
            self.chain.frames.pop();
            self.settle();
            self.stats.returns += 1;
            self.doubt = false;
            return true;
        }

        let slot = held.cfa.wrapping_sub(8);
        if after.rsp < held.cfa {
            // rsp was lowered again, and the address is still there: OCaml's `caml_c_call` is
            // `pop mem; sub $8, %rsp; jmp *%rax`.
            if after.rsp == slot && world.word(slot) == Some(held.pc) {
                self.put_at(slot);
                self.entry = SinceEntry::At;
            }
        } else if self.hides && self.may_be_copied() && after.rsp == held.cfa {
            // It was copied to where rsp is: a tail call with fewer arguments.
            self.put_at(held.cfa);
            self.entry = SinceEntry::At;
        } else if held.rewritten {
            // libgcc's eh_return goes to a landing pad this way.
            self.chain.frames.pop();
            self.settle();
            self.stats.rewritten += 1;
        } else {
            self.leave_with_register((before.rip, after.rip));
        }
        false
    }

    /// A jump elsewhere while the innermost return address is in a register.
    fn leave_with_register(&mut self, site: (u64, u64)) {
        match self.learned(site) {
            _ if self.hides => {}
            None => self.doubt_top(site),
            Some(true) => {}
            Some(false) => {
                self.chain.frames.pop();
                self.stats.rewritten += 1;
                self.settle();
            }
        }
    }

    /// The innermost return address is in memory again.
    fn put_at(&mut self, slot: u64) {
        self.resolve(true);
        if let Some(held) = self.top_mut() {
            held.slot = slot;
            held.cfa = slot.wrapping_add(8);
            held.in_register = false;
        }
        self.settle();
    }

    /// The word at rsp was written. If it is the return address that was popped, it is in memory
    /// again, perhaps elsewhere.
    pub(super) fn put_back(&mut self, slot: u64, world: &mut dyn World) -> bool {
        let Some(held) = self.top_mut().filter(|f| f.in_register) else {
            return false;
        };
        let Some(word) = world.word(slot).filter(|_| slot < held.cfa) else {
            return false;
        };
        // A tracer may keep the place for it with its own address (Linux `arch_rethook_trampoline`).
        if word != held.pc && !(held.taken && world.is_trampoline(word)) {
            return false;
        }
        self.put_at(slot);
        true
    }

    /// A push, the first since rsp left a frame without a return. If it is of the frame's return
    /// address, the program had read it before: V8's `mov 8(%rbp), %rcx; mov (%rbp), %rbp;
    /// lea 8(%r15), %rsp; push %rcx; ret`.
    pub(super) fn revive(&mut self, slot: u64, world: &mut dyn World) -> bool {
        let Some(held) = self.dropped.take() else {
            return false;
        };
        let is_it = held.kind == TrueKind::Call
            && !held.thunk
            && self.chain.top().is_none_or(|f| slot < f.slot)
            && world.word(slot) == Some(held.pc);
        if is_it {
            self.chain.frames.push(ShadowFrame {
                slot,
                cfa: slot.wrapping_add(8),
                in_register: false,
                ..held
            });
            self.stats.dropped -= 1;
            self.settle();
        }
        is_it
    }

    /// A push of a frame pointer directly below a code address that was pushed: the code builds the
    /// frame of another function, to which it will return (HotSpot and V8 replace the frame of a
    /// compiled function by those of interpreted ones). The frame pointer points to where the
    /// innermost frame has its own, below its return address; or it is rbp, and all is in memory
    /// without a file.
    pub(super) fn build_frame(&mut self, before: &Cpu, after: &Cpu, world: &mut dyn World) {
        let slot = after.rsp.wrapping_add(8);
        let top = self.chain.top().filter(|f| slot < f.slot);
        let Some(top) = top.filter(|_| self.written_slot == slot) else {
            return;
        };
        let pointer = world.word(after.rsp);
        let is_linked = pointer == Some(top.slot.wrapping_sub(8));
        if !is_linked && pointer != Some(before.saved[SAVED_RBP]) {
            return;
        }
        let Some(pc) = world.word(slot).filter(|&pc| world.is_code(pc)) else {
            return;
        };
        if is_linked || is_generated(pc, before, world) {
            self.push(slot, slot.wrapping_add(8), pc, before);
            self.entry = SinceEntry::Past;
        }
    }

    /// Whether a push of `value` to `slot` will leave all frames as they are, for certain. `saved`
    /// are the callee-saved registers. Once it is executed, [`Tracker::pushed`] takes the place of
    /// [`Tracker::step`].
    #[inline]
    pub fn is_plain_push(
        &self,
        slot: u64,
        value: u64,
        saved: &[u64; 6],
        world: &mut impl World,
    ) -> bool {
        let above = slot.wrapping_add(8);
        let top = self.chain.top();
        let mut builds = || {
            let is_below = top.is_some_and(|top| above < top.slot) && self.written_slot == above;
            let is_linked = top.is_some_and(|top| value == top.slot.wrapping_sub(8));
            // A frame pointer below a register that was saved.
            let mut is_saved = || world.word(above).is_some_and(|word| saved.contains(&word));
            is_below && (is_linked || value == saved[SAVED_RBP] && !is_saved())
        };
        above <= self.limit
            && self.dropped.is_none()
            && top.is_none_or(|top| !top.in_register)
            && self.is_below_planted(slot)
            && !builds()
            && !self.may_return_to(value, world)
    }

    /// A push to `slot` was executed, which left all frames as they are: see
    /// [`Tracker::is_plain_push`]. It is not counted.
    #[inline]
    pub fn pushed(&mut self, slot: u64) {
        self.entry = self.entry.after_push();
        self.written_slot = slot;
        self.note_push(slot);
    }

    /// Notes a push to `slot`.
    pub(super) fn note_push(&mut self, slot: u64) {
        let above = slot.wrapping_add(8);
        let goes_on = self.pushed.start <= above && above < self.pushed.end;
        let end = if goes_on { self.pushed.end } else { above };
        self.pushed = slot..end;
    }

    /// A `ret` to an address that was pushed, but not last. If a code address was pushed before it,
    /// that is the return address of the function that starts.
    pub(super) fn enter_pushed(&mut self, after: &Cpu, world: &mut dyn World) {
        let slot = after.rsp;
        let is_pushed = self.pushed.contains(&slot);
        let is_inner = self.chain.top().is_none_or(|f| slot < f.slot);
        let pc = world.word(slot).filter(|&pc| world.is_code(pc));
        if let Some(pc) = pc.filter(|_| is_pushed && is_inner) {
            self.push(slot, slot.wrapping_add(8), pc, after);
        }
    }

    /// A jump with the function's own return address, `pc`, at `slot`: it has made room for more
    /// arguments, or aligned rsp, if it has pushed nothing else, or has written another word where
    /// the address was (V8's `push 0x18(%rsp); ..; mov %rdx, 0x20(%rsp); jmp`).
    pub(super) fn move_own(&mut self, slot: u64, pc: u64, world: &mut dyn World) -> bool {
        let Some(top) = self.chain.top().filter(|f| f.pc == pc && !f.in_register) else {
            return false;
        };
        let is_moved = self.entry == SinceEntry::Pushed || world.word(top.slot) != Some(pc);
        is_moved && self.move_own_now(slot, pc)
    }

    fn move_own_now(&mut self, slot: u64, pc: u64) -> bool {
        let Some(top) = self.top_mut().filter(|f| f.pc == pc) else {
            return false;
        };
        (top.slot, top.cfa) = (slot, slot.wrapping_add(8));
        self.entry = SinceEntry::At;
        self.settle();
        true
    }

    /// An indirect jump to a function, with a return address at rsp that was pushed there last: a
    /// call. The jump may as well be a switch, after a register was saved that contains a code
    /// address. So the target must be far away and the address behind a call; or both the jump and
    /// the address are in memory without a file, as with an interpreter that a program generates.
    pub(super) fn call_by_push(
        &mut self,
        before: &Cpu,
        after: &Cpu,
        world: &mut dyn World,
    ) -> bool {
        let slot = after.rsp;
        let entry = core::mem::replace(&mut self.entry, SinceEntry::Past);

        // The pushed word must lie below the function's own return address.
        let top = self.chain.top();
        if let Some(top) = top.filter(|f| f.slot <= slot) {
            // A jump with the function's own return address on top: a tail call.
            if top.slot == slot {
                self.entry = SinceEntry::At;
            }
            return false;
        }

        // The word must be the one written last, and no switch of stacks may be open.
        if self.written_slot != slot || self.chain.last().pending.is_some() {
            return false;
        }

        // A return address points to code, whatever else it may be.
        let Some(pc) = world.word(slot).filter(|&pc| world.is_code(pc)) else {
            return false;
        };

        let cfa = slot.wrapping_add(8);
        // A tail call with more arguments moves the return address down.
        if entry == SinceEntry::Pushed && self.move_own_now(slot, pc) {
            return true;
        }

        // The targets of a switch table are near.
        let is_far = before.rip.abs_diff(after.rip) >= SWITCH_TABLE_REACH;
        let mut is_behind_call = || {
            let bytes = world.word(pc.wrapping_sub(8));
            bytes.is_some_and(|bytes| ends_with_call(bytes.to_le_bytes()))
        };
        let is_call = is_far && is_behind_call() || is_generated(pc, before, world);
        if !is_call {
            return false;
        }

        self.stats.calls += 1;
        self.push(slot, cfa, pc, after);
        true
    }
}
