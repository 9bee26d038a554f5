//! Calls and jumps: where they lead, and which never return.

use super::super::function::Gap;
use super::super::functions;
use super::{FrameContext, Next, Walker};
use crate::kernel;
use crate::proof::exec::push;
use crate::proof::no_return;
use crate::proof::program::Entry;
use crate::proof::state::State;
use crate::proof::value::Value;
use iced_x86::{FlowControl, Instruction, OpKind};
use unwind_sim_unwind::regs::{Reg, RegMask};

/// The length of the distance at the end of a near jump or call, bytes.
const REL32_LEN: u64 = 4;
/// The minimum length of a jump or call with such a distance, bytes.
const REL32_INSN_MIN: usize = 5;

fn is_known(name: &str) -> bool {
    kernel::never_returns(name) || no_return::is_known(name)
}

/// What a jump to the kernel's own stubs stands for (Linux `arch/x86/lib/retpoline.S`).
enum Stub {
    /// The stub returns: `ret`.
    Return,
    /// A jump to the address in the register.
    Jump(Reg),
}

/// The stub with this name.
fn stub(name: &str) -> Option<Stub> {
    if name.ends_with("return_thunk") {
        return Some(Stub::Return);
    }
    let prefixes = ["__x86_indirect_thunk_", "__x86_indirect_jump_thunk_"];
    let reg = prefixes.iter().find_map(|p| name.strip_prefix(p))?;
    let mut regs = Reg::ALL.into_iter().take(16);
    regs.find(|r| r.to_string() == reg).map(Stub::Jump)
}

impl<'g> Walker<'g> {
    /// The function of another object that a direct jump or call goes to.
    pub(super) fn import(&self, insn: &Instruction) -> Option<&'g str> {
        if insn.len() < REL32_INSN_MIN {
            return None;
        }
        self.file.import(insn.next_ip().wrapping_sub(REL32_LEN))
    }

    pub(super) fn unit_at(&self, address: u64) -> Option<(usize, &functions::Unit)> {
        let after = self.units.partition_point(|u| u.range.start <= address);
        let index = after.checked_sub(1)?;
        let unit = self.units.get(index)?;
        unit.range.contains(&address).then_some((index, unit))
    }

    fn never_returns(&self, target: u64) -> bool {
        self.never.contains(&target) || self.file.names_at(target).any(is_known)
    }

    /// Whether a jump of `part` to `target` certainly stays in it, without entering it anew.
    fn is_inside(&self, part: usize, target: u64) -> bool {
        let range = self.parts.get(part).map(|part| &part.body.range);
        range.is_some_and(|range| range.start < target && target < range.end)
    }

    /// Remembers that `target` is entered as a function is.
    fn enter(&mut self, target: u64) {
        let unit = self.unit_at(target);
        let is_new = unit.is_none_or(|(_, unit)| unit.is_open && unit.range.start != target);
        if is_new && self.file.code_at(target).is_some() {
            self.entered.push(target);
        }
    }

    pub(super) fn call(
        &mut self,
        part: usize,
        insn: &Instruction,
        state: &mut State,
        standing: FrameContext,
    ) -> Next {
        let (pc, next) = (insn.ip(), insn.next_ip());
        if self.hints.intra_calls.contains(&pc) {
            // `ANNOTATE_INTRA_FUNCTION_CALL`: a jump that also pushes an address.
            push(state, 8, Value::Computed);
            self.go(part, pc, insn.near_branch64(), state, standing);
            return Next::End;
        }

        let direct = insn.op0_kind() == OpKind::NearBranch64;
        let imported = if direct { self.import(insn) } else { None };
        let never = match imported {
            Some(name) => is_known(name),
            None if direct => {
                let target = insn.near_branch64();
                if target == next {
                    // Only to learn the address: it stays on the stack, or is popped.
                    push(state, 8, Value::Computed);
                    return Next::Go(next);
                }
                self.callees.push(target);
                self.enter(target);
                self.never_returns(target)
            }
            None => self.machine.import(insn, state).is_some_and(is_known),
        };

        // Where code ends behind a call, the callee does not return (`discover::ends`).
        let never = never || self.ends_at(part, next);
        self.examine_call(insn, state, standing);
        state.call(RegMask::CALLEE_SAVED);
        self.landing_pad(part, pc, state, standing);

        if never { Next::End } else { Next::Go(next) }
    }

    /// Whether a function whose end is not known ends behind a call, at `next`.
    fn ends_at(&self, part: usize, next: u64) -> bool {
        let unit = self.parts.get(part).and_then(|p| self.units.get(p.unit));
        let is_open = unit.is_some_and(|unit| unit.is_open);
        is_open && self.ends.is_some_and(|ends| ends.contains(&next))
    }

    /// Where an exception thrown by the call at `pc` continues.
    fn landing_pad(&mut self, part: usize, pc: u64, state: &State, standing: FrameContext) {
        let Some(sites) = self.parts.get(part).map(|p| &p.sites) else {
            return;
        };
        let after = sites.partition_point(|s| s.calls.start <= pc);
        let site = after.checked_sub(1).and_then(|i| sites.get(i));
        if let Some(pad) = site.filter(|s| s.calls.contains(&pc)).map(|s| s.pad) {
            self.go(part, pc, pad, state, standing);
        }
    }

    /// A direct jump.
    pub(super) fn branch(
        &mut self,
        part: usize,
        insn: &Instruction,
        state: &State,
        standing: FrameContext,
    ) {
        let target = insn.near_branch64();
        let imported = self.import(insn);
        // The kernel's stubs are jumped to always; one lies within a function (`retbleed_untrain_ret`).
        let is_conditional = insn.flow_control() == FlowControl::ConditionalBranch;
        if is_conditional && imported.is_none() && self.is_inside(part, target) {
            return self.meet(target, state, standing);
        }

        let is_imported = imported.is_some();
        let named = self.file.names_at(target).filter(|_| !is_imported);
        let stub = imported.into_iter().chain(named).find_map(stub);

        match stub {
            Some(Stub::Return) => {
                self.returns = true;
                self.examine_return(insn, state, standing);
            }
            Some(Stub::Jump(reg)) => {
                self.jump_to(part, insn, state.reg(reg), imported, state, standing);
            }
            None if is_imported => {
                self.examine_tail_call(insn.ip(), state, standing);
                self.returns |= !imported.is_some_and(is_known);
            }
            None => self.go(part, insn.ip(), target, state, standing),
        }
    }

    /// Continues at `target`, in this function or another.
    pub(super) fn go(
        &mut self,
        part: usize,
        from: u64,
        target: u64,
        state: &State,
        standing: FrameContext,
    ) {
        match self.part_at(target) {
            Some(_) => self.meet(target, state, standing),
            None => self.leave(part, from, target, state, standing),
        }
    }

    /// A jump out of the functions that are followed: a tail call, or a jump into a cold part.
    pub(super) fn leave(
        &mut self,
        part: usize,
        from: u64,
        target: u64,
        state: &State,
        standing: FrameContext,
    ) {
        let unit = self.unit_at(target);
        let is_entry = unit.is_none_or(|(_, unit)| {
            unit.entry == Entry::Plt || unit.entry == Entry::Call && unit.range.start == target
        });
        if is_entry {
            if unit.is_some() && from.wrapping_add(1) != target {
                self.examine_tail_call(from, state, standing);
            }
            self.callees.push(target);
            // objtool gives no row to padding that code runs on into.
            let runs_on = from.wrapping_add(1) == target;
            if state.is_as_at_entry() && !(runs_on && functions::is_kernel(self.file)) {
                self.enter(target);
            }
            self.returns |= !self.never_returns(target);
            return;
        }

        let Some(index) = unit.map(|(index, _)| index) else {
            return;
        };

        match self.open(index) {
            Some(_) => self.meet(target, state, standing),
            None => self.gap(part, Gap::Limit, from),
        }
    }

    pub(super) fn jump_indirect(
        &mut self,
        part: usize,
        insn: &Instruction,
        state: &State,
        standing: FrameContext,
    ) {
        let target = self.machine.target(insn, state);
        let name = self.machine.import(insn, state);
        self.jump_to(part, insn, target, name, state, standing);
    }

    /// A jump to the address `target`, which may be that of the imported function `name`.
    fn jump_to(
        &mut self,
        part: usize,
        insn: &Instruction,
        target: Value,
        name: Option<&str>,
        state: &State,
        standing: FrameContext,
    ) {
        let (table, base) = match target {
            Value::TableEntry { table } => (table, 0),
            Value::TableTarget { table, base } => (table, i64::from(base)),
            _ => {
                self.returns |= !name.is_some_and(is_known);
                if self.is_plt(part) {
                    return;
                }
                self.examine_tail_call(insn.ip(), state, standing);
                // With a frame of its own it cannot be a tail call.
                if !state.is_as_at_entry() {
                    self.gap(part, Gap::IndirectJump, insn.ip());
                }
                return;
            }
        };

        let Some(table) = self.machine.tables.get(usize::from(table)).copied() else {
            return;
        };
        let Some(body) = self.parts.get(part).map(|p| &p.body) else {
            return;
        };

        // Where another table begins, this one ends.
        let next = body.next_address(table.at);
        let targets = table.targets(self.file, base.cast_unsigned(), next, |target| {
            body.starts_at(target)
                || self
                    .unit_at(target)
                    .is_some_and(|(_, unit)| unit.entry == Entry::Part)
        });

        if targets.addresses.is_empty() {
            // No entry fits: where the jump leads is not known.
            self.returns = true;
            self.gap(part, Gap::IndirectJump, insn.ip());
        }

        for target in targets.addresses {
            self.go(part, insn.ip(), target, state, standing);
        }
    }
}
