//! AVX, AVX2, FMA and F16C: the VEX-encoded instructions with xmm and ymm registers.
//!
//! Most have a legacy form and its function: see [`super::sse`]. Here are those that cross lanes,
//! select bytes of memory, or have more operands. Not here: AES, carry-less multiplication and
//! Galois fields.

mod element;
mod fused;
mod gather;
mod half;
mod masked;
mod permute;
#[cfg(test)]
mod tests;
mod variable;

pub(crate) use element::{element_address, has_mask};

use super::sse;
use crate::core::Core;
use crate::op::{Flow, Op, Run};
use iced_x86::{Instruction, Mnemonic, OpKind};

/// The function of a VEX-encoded instruction with vector registers.
pub(super) fn select(insn: &Instruction, op: &mut Op) -> Option<Run> {
    let is_register = |number| number < insn.op_count() && insn.op_kind(number) == OpKind::Register;
    if is_register(1) && !is_register(2) && !is_register(3) {
        // The last source operand is always in `extra`.
        op.extra = op.src;
    }
    match insn.mnemonic() {
        Mnemonic::Vzeroupper => Some(zero_upper),
        Mnemonic::Vzeroall => Some(zero_all),
        _ => sse::select_vex(insn, op)
            .or_else(|| permute::select(insn, op))
            .or_else(|| variable::select(insn))
            .or_else(|| masked::select(insn))
            .or_else(|| gather::select(insn))
            .or_else(|| fused::select(insn, op))
            .or_else(|| half::select(insn)),
    }
}

fn zero_upper(core: &mut Core, _: &Op) -> Flow {
    let vectors = &mut core.state.vectors;
    for number in 0..16 {
        vectors.set_ymm(number, [vectors.xmm(number), 0]);
    }
    Flow::Next
}

fn zero_all(core: &mut Core, _: &Op) -> Flow {
    core.state.vectors = Default::default();
    Flow::Next
}
