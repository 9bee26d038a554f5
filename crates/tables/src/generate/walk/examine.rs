//! Rules of the kernel that the code breaks, as objtool warns of them.

use super::{Breach, FlowControl, FrameContext, FrameKind, Walker, breach};
use crate::generate::rows;
use crate::proof::program::Entry;
use crate::proof::state::State;
use crate::proof::value::Value;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use unwind_sim_unwind::regs::Reg;

impl Walker<'_> {
    pub(super) fn breach(&mut self, at: u64, breach: Breach) {
        self.breaches.entry((at, breach.as_str())).or_insert(breach);
    }

    /// What an instruction has done to the stack, which leaves `state`.
    pub(super) fn examine(&mut self, insn: &Instruction, state: &State, standing: FrameContext) {
        if standing.is_spoilt {
            return;
        }
        match standing.frame {
            FrameKind::Function => {}
            FrameKind::Undefined | FrameKind::Outermost
                if insn.stack_pointer_increment() != 0
                    && insn.flow_control() == FlowControl::Next =>
            {
                return self.breach_in_function(insn.ip(), Breach::UndefinedStack);
            }
            _ => return,
        }

        let to_sp = insn.op0_kind() == OpKind::Register && insn.op0_register() == Register::RSP;
        match insn.mnemonic() {
            // objtool follows a realignment only where rbp or a `drap` register finds the frame
            // (`check.c`).
            Mnemonic::And if to_sp && rows::row(state, standing.frame).is_none() => {
                self.breach(insn.ip(), Breach::Realignment);
            }
            Mnemonic::Push if insn.op0_register() == Register::RBP => self.pushes_rbp = true,
            Mnemonic::Mov | Mnemonic::Lea
                if insn.op0_kind() == OpKind::Register
                    && insn.op0_register() == Register::RBP
                    && state.reg(Reg::Rbp).is_stack() =>
            {
                self.has_frame_pointer = true;
            }
            Mnemonic::Enter => self.has_frame_pointer = true,
            Mnemonic::Sysretq
            | Mnemonic::Sysexitq
            | Mnemonic::Syscall
            | Mnemonic::Sysenter
            | Mnemonic::Retf
            | Mnemonic::Iretq => {
                // objtool accepts them where a hint says what the stack is behind them
                // (`INSN_CONTEXT_SWITCH`).
                let is_hinted = self.hints.at.contains_key(&insn.next_ip());
                let is_self = insn.mnemonic() == Mnemonic::Iretq;
                if !is_hinted && !is_self {
                    self.breach_in_function(insn.ip(), Breach::ContextSwitch);
                }
            }
            _ if to_sp && state.reg(Reg::Rsp) == Value::Unknown => {
                self.breach(insn.ip(), Breach::StackRegister);
            }
            _ => {}
        }

        if to_sp
            && matches!(
                insn.mnemonic(),
                Mnemonic::Mov | Mnemonic::Lea | Mnemonic::Pop
            )
            && state.reg(Reg::Rsp) == Value::Unknown
        {
            self.breach(insn.ip(), Breach::StackRegister);
        }
    }

    fn breach_in_function(&mut self, at: u64, breach: Breach) {
        let is_function = self
            .unit_at(at)
            .is_some_and(|(_, unit)| unit.entry == Entry::Call);
        if is_function {
            self.breach(at, breach);
        }
    }

    /// Looks for what objtool would warn about at a return.
    pub(super) fn examine_return(
        &mut self,
        insn: &Instruction,
        state: &State,
        standing: FrameContext,
    ) {
        let at = insn.ip();
        let is_uneven = self.hints.uneven_returns.contains(&at);
        if standing.is_spoilt || standing.frame != FrameKind::Function || is_uneven {
            return;
        }
        if insn.mnemonic() == Mnemonic::Ret && breach::is_modified(state) {
            self.breach(at, Breach::Return);
        } else if self.pushes_rbp && !self.has_frame_pointer {
            self.breach(at, Breach::ScratchBp);
        }
    }

    /// A jump to another function.
    pub(super) fn examine_tail_call(&mut self, at: u64, state: &State, standing: FrameContext) {
        let is_uneven = self.hints.uneven_returns.contains(&at);
        if !standing.is_spoilt
            && standing.frame == FrameKind::Function
            && !is_uneven
            && breach::is_modified(state)
        {
            self.breach_in_function(at, Breach::SiblingCall);
        }
    }

    /// A call, before it is made.
    pub(super) fn examine_call(
        &mut self,
        insn: &Instruction,
        state: &State,
        standing: FrameContext,
    ) {
        if standing.is_spoilt || standing.frame != FrameKind::Function {
            return;
        }

        let target = insn.near_branch64();
        let is_direct = insn.op0_kind() == OpKind::NearBranch64;
        let imported = if is_direct { self.import(insn) } else { None };
        let own = self.unit_at(insn.ip()).map(|(_, unit)| unit.range.clone());

        let is_inside = imported.is_none()
            && own.is_some_and(|own| own.contains(&target) && target != own.start)
            && self.file.names_at(target).next().is_none();
        if is_direct && is_inside && !self.hints.intra_calls.contains(&insn.ip()) {
            self.breach(insn.ip(), Breach::IntraFunctionCall);
        }

        let named = self
            .file
            .names_at(target)
            .filter(|_| is_direct && imported.is_none());
        let is_trace = imported.into_iter().chain(named).any(|name| name == FENTRY);
        if !is_trace && !breach::has_frame(state) {
            self.breach(insn.ip(), Breach::NoFrame);
        }
    }

    /// Execution goes on behind a function's last instruction, at `pc`.
    pub(super) fn fall_through(&mut self, part: usize, pc: u64, standing: FrameContext) {
        let unit = self
            .parts
            .get(part)
            .and_then(|part| self.units.get(part.unit));
        let Some(unit) = unit.filter(|unit| unit.entry == Entry::Call) else {
            return;
        };
        let next = match self.unit_at(pc) {
            Some((_, next)) => next.name.clone(),
            None => String::new(),
        };
        // A prefix of a function only holds its hash, or room to patch.
        let is_prefix = ["__cfi_", "__pfx_"]
            .iter()
            .any(|p| unit.name.starts_with(p));
        if !is_prefix && !standing.is_spoilt && standing.frame == FrameKind::Function {
            let at = self.last(part, pc);
            self.breach(at, Breach::FallsThrough { next });
        }
    }

    /// The address (svma) of the last instruction before `pc`.
    fn last(&self, part: usize, pc: u64) -> u64 {
        let range = self.parts.get(part).map(|part| part.body.range.clone());
        let start = range.map_or(pc, |range| range.start);
        let before = (start..pc).rev().take(16);
        before
            .into_iter()
            .find(|at| self.found(*at).is_some())
            .unwrap_or(start)
    }

    /// Whether alternatives have the frames of the code that they replace.
    pub(super) fn examine_alternatives(&mut self) {
        let differ = self.inside.iter().filter(|(at, rule)| {
            let row = self.found(**at).and_then(|found| found.rule);
            rule.is_some() && row.is_some() && row != **rule
        });
        let places: Vec<u64> = differ.map(|(at, _)| *at).collect();
        for place in places {
            let before = self.edges.alternatives.range(..=place);
            let start = before.map(|(start, _)| *start).next_back();
            self.breach(start.unwrap_or(place), Breach::Alternatives);
        }
    }
}

/// What functions call first in kernels that can trace them.
const FENTRY: &str = "__fentry__";
