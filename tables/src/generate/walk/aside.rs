//! Ways that the code itself does not show: those of the kernel's sections.

use super::{Next, Standing, Walker};
use crate::generate::rows;
use crate::kernel::Alternative;
use crate::proof::exec::push;
use crate::proof::state::State;
use crate::proof::value::Value;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

/// The maximum number of instructions of an alternative.
const ALTERNATIVE_MAX: usize = 256;

impl Walker<'_> {
    /// What the code itself does not show: static branches, faults, alternatives.
    pub(super) fn side_ways(
        &mut self,
        part: usize,
        pc: u64,
        insn: &Instruction,
        state: &State,
        standing: Standing,
    ) {
        let edges = self.edges;
        if let Some(&fixup) = edges.fixups.get(&pc) {
            self.go(part, pc, fixup, state, standing);
        }
        if let Some(&target) = edges.branches.get(&pc) {
            self.go(part, pc, target, state, standing);
            self.go(part, pc, insn.next_ip(), state, standing);
        }
        for alternative in edges.alternatives.get(&pc).into_iter().flatten() {
            self.alternative(part, alternative, state.clone(), standing);
        }
    }

    /// Follows what replaces the code at an instruction.
    fn alternative(
        &mut self,
        part: usize,
        alternative: &Alternative,
        mut state: State,
        standing: Standing,
    ) {
        let Alternative {
            original,
            replacement,
        } = alternative;
        let mut pc = replacement.start;
        for _ in 0..ALTERNATIVE_MAX {
            let place = original.start + (pc - replacement.start);
            if place > original.start && place < original.end {
                let rule = rows::row(&state, standing.frame).filter(|_| !standing.is_spoilt);
                self.inside.entry(place).or_insert(rule);
            }
            if pc >= replacement.end {
                return self.go(part, original.start, original.end, &state, standing);
            }
            let bytes = self.file.bytes(pc);
            let insn = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE).decode();
            let near = insn.op0_kind() == OpKind::NearBranch64;
            let target = insn.near_branch64();
            if insn.is_invalid() {
                return;
            }
            let is_inside = near && replacement.contains(&target);
            if is_inside && target > pc && insn.mnemonic() == Mnemonic::Call {
                push(&mut state, 8, Value::Computed);
                pc = target;
                continue;
            }
            if is_inside && insn.flow_control() == FlowControl::ConditionalBranch {
                pc = insn.next_ip();
                continue;
            }
            match self.step(part, &insn, &mut state, standing) {
                Next::Go(next) => pc = next,
                Next::End => return,
            }
        }
    }
}
