//! Calls and jumps: where they lead, and which never return.

use super::super::function::Gap;
use super::super::functions;
use super::{Next, Walker};
use crate::kernel;
use crate::proof::exec::push;
use crate::proof::no_return;
use crate::proof::program::Entry;
use crate::proof::state::State;
use crate::proof::value::Value;
use iced_x86::{Instruction, OpKind};

/// The length of the distance at the end of a near jump or call, bytes.
const REL32_LEN: u64 = 4;

fn is_known(name: &str) -> bool {
    kernel::never_returns(name) || no_return::is_known(name)
}

impl Walker<'_> {
    /// The function of another object that a direct jump or call goes to.
    fn import(&self, insn: &Instruction) -> Option<&str> {
        self.file.import(insn.next_ip().wrapping_sub(REL32_LEN))
    }

    fn unit_at(&self, address: u64) -> Option<(usize, &functions::Unit)> {
        let after = self.units.partition_point(|u| u.range.start <= address);
        let index = after.checked_sub(1)?;
        let unit = self.units.get(index)?;
        unit.range.contains(&address).then_some((index, unit))
    }

    fn never_returns(&self, target: u64) -> bool {
        self.never.contains(&target) || self.file.names_at(target).any(is_known)
    }

    pub(super) fn call(
        &mut self,
        part: usize,
        insn: &Instruction,
        state: &mut State,
        is_spoilt: bool,
    ) -> Next {
        let (pc, next) = (insn.ip(), insn.next_ip());
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
                self.never_returns(target)
            }
            None => self.machine.import(insn, state).is_some_and(is_known),
        };
        state.call();
        self.landing_pad(part, pc, state, is_spoilt);
        match never {
            true => Next::End,
            false => Next::Go(next),
        }
    }

    /// Where an exception thrown by the call at `pc` continues.
    fn landing_pad(&mut self, part: usize, pc: u64, state: &State, is_spoilt: bool) {
        let Some(sites) = self.parts.get(part).map(|p| &p.sites) else {
            return;
        };
        let after = sites.partition_point(|s| s.calls.start <= pc);
        let site = after.checked_sub(1).and_then(|i| sites.get(i));
        if let Some(pad) = site.filter(|s| s.calls.contains(&pc)).map(|s| s.pad) {
            self.go(part, pc, pad, state.clone(), is_spoilt);
        }
    }

    /// A direct jump.
    pub(super) fn branch(
        &mut self,
        part: usize,
        insn: &Instruction,
        state: State,
        is_spoilt: bool,
    ) {
        match self.import(insn) {
            Some(name) => self.returns |= !is_known(name),
            None => self.go(part, insn.ip(), insn.near_branch64(), state, is_spoilt),
        }
    }

    /// Continues at `target`, in this function or another.
    pub(super) fn go(
        &mut self,
        part: usize,
        from: u64,
        target: u64,
        state: State,
        is_spoilt: bool,
    ) {
        match self.part_at(target) {
            Some(_) => self.job(target, state, is_spoilt),
            None => self.leave(part, from, target, state, is_spoilt),
        }
    }

    /// A jump out of the functions that are followed: a tail call, or a jump into a cold part.
    pub(super) fn leave(
        &mut self,
        part: usize,
        from: u64,
        target: u64,
        state: State,
        is_spoilt: bool,
    ) {
        let unit = self.unit_at(target);
        let is_entry = unit.is_none_or(|(_, unit)| {
            unit.entry == Entry::Plt || unit.entry == Entry::Call && unit.range.start == target
        });
        if is_entry {
            self.callees.push(target);
            self.returns |= !self.never_returns(target);
            return;
        }
        let Some(index) = unit.map(|(index, _)| index) else {
            return;
        };
        match self.open(index) {
            Some(_) => self.job(target, state, is_spoilt),
            None => self.gap(part, Gap::Limit, from),
        }
    }

    pub(super) fn jump_indirect(
        &mut self,
        part: usize,
        insn: &Instruction,
        state: &State,
        is_spoilt: bool,
    ) {
        let (table, base) = match self.machine.target(insn, state) {
            Value::TableEntry { table } => (table, 0),
            Value::TableTarget { table, base } => (table, i64::from(base)),
            _ => {
                let name = self.machine.import(insn, state);
                self.returns |= !name.is_some_and(is_known);
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
        let next = body.next_address(table.at);
        let targets = table.targets(self.file, base.cast_unsigned(), next, |target| {
            body.starts_at(target)
                || self
                    .unit_at(target)
                    .is_some_and(|(_, unit)| unit.entry == Entry::Part)
        });
        if targets.addresses.is_empty() {
            self.returns = true;
            self.gap(part, Gap::IndirectJump, insn.ip());
        }
        for target in targets.addresses {
            self.go(part, insn.ip(), target, state.clone(), is_spoilt);
        }
    }
}
