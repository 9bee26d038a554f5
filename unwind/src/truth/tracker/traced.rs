//! Return addresses that a tracer has taken: it puts the address of its own code in their place, which
//! returns for the function later (Linux `arch_rethook_trampoline`, `return_to_handler`).
//!
//! The frame outlives the function: until then the tracer has its return address.

use super::Tracker;
use crate::insn::ends_with_call;
use crate::truth::TrueKind;
use crate::truth::stacks::{Cpu, ShadowFrame, World};

impl Tracker {
    /// Another function has written the return address at `slot`: whether it is now the address of a
    /// tracer's code.
    pub fn take_return(&mut self, slot: u64, is_taken: bool) {
        let mut calls = self.chain.frames.iter_mut().rev();
        let mut held = calls.find(|held| held.kind == TrueKind::Call && held.slot == slot);
        if let Some(held) = held.as_mut().filter(|held| !held.in_register) {
            held.taken = is_taken;
        }
    }

    /// A `ret` that took the return address of `held`, the innermost frame, went to `rip` instead. Returns
    /// whether that is a tracer's code: the frame goes on without a slot.
    pub(super) fn return_to_tracer(
        &mut self,
        held: &ShadowFrame,
        rip: u64,
        world: &mut dyn World,
    ) -> bool {
        if held.kind != TrueKind::Call || held.thunk || !world.is_trampoline(rip) {
            return false;
        }
        if let Some(top) = self.top_mut() {
            (top.slot, top.in_register, top.taken) = (top.cfa, true, true);
        }
        self.settle();
        true
    }

    /// Whether a `ret` by a word that nobody is known to have pushed was a jump, with the function's own return
    /// address on top: so a kernel's tracer goes on with other code than that of the function (Linux
    /// `ftrace_regs_caller`, which stores the address above rsp). What is behind a call is returned to.
    pub(super) fn jumps_for_tracer(&self, after: &Cpu, world: &mut dyn World) -> bool {
        let top = self.chain.top();
        let is_own = top.is_some_and(|held| held.is_in_memory() && held.slot == after.rsp);
        if !is_own || world.is_returned_to(after.rip) || !world.is_code(after.rip) {
            return false;
        }
        let before = world.word(after.rip.wrapping_sub(8));
        before.is_none_or(|word| !ends_with_call(word.to_le_bytes()))
    }

    /// A `ret` by a return address that the running code wrote itself has gone to `after`: with that a tracer
    /// returns for the function (`return_to_handler`).
    pub(super) fn return_by_tracer(&mut self, after: &Cpu) {
        let is_it = |held: &&ShadowFrame| held.in_register && held.taken;
        let top = self.chain.top().filter(is_it);
        if top.is_some_and(|top| (top.pc, top.cfa) == (after.rip, after.rsp)) {
            self.chain.frames.pop();
            self.stats.returns += 1;
            self.settle();
        }
    }
}
