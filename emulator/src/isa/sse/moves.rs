//! Moves of whole registers and of their lower and upper parts.

use super::registers::{aligned, set_xmm, xmm};
use crate::op::{Flow, Op, Run, flow};
use crate::operands::{Form, form};
use crate::state::{State, mask};
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    use Mnemonic::*;
    let from_general = insn.op_register(1).is_gpr();
    let to_general = insn.op_register(0).is_gpr();
    Some(match (insn.mnemonic(), form(insn)) {
        (Movaps | Movapd | Movdqa | Movups | Movupd | Movdqu, Form::RR) => whole_rr,
        (Movups | Movupd | Movdqu | Lddqu, Form::RM) => unaligned_rm,
        (Movups | Movupd | Movdqu, Form::MR) => unaligned_mr,
        (Movaps | Movapd | Movdqa | Movntdqa, Form::RM) => aligned_rm,
        (Movaps | Movapd | Movdqa | Movntps | Movntpd | Movntdq, Form::MR) => aligned_mr,
        (Movss, Form::RR) => keep_rr::<32>,
        (Movsd, Form::RR) => keep_rr::<64>,
        (Movd, Form::RR) if from_general => from_general_rr::<32>,
        (Movq, Form::RR) if from_general => from_general_rr::<64>,
        (Movd, Form::RR) if to_general => to_general_rr::<32>,
        (Movq, Form::RR) if to_general => to_general_rr::<64>,
        (Movq, Form::RR) => low_rr,
        (Movss | Movd, Form::RM) => low_rm::<32>,
        (Movsd | Movq, Form::RM) => low_rm::<64>,
        (Movss | Movd, Form::MR) => low_mr::<32>,
        (Movsd | Movq | Movlps | Movlpd, Form::MR) => low_mr::<64>,
        (Movhps | Movhpd, Form::MR) => high_mr,
        (Movlps | Movlpd, Form::RM) => keep_high_rm,
        (Movhps | Movhpd, Form::RM) => keep_low_rm,
        _ => return None,
    })
}

fn whole_rr(state: &mut State, op: &Op) -> Flow {
    let value = xmm(state, op.src);
    set_xmm(state, op.dst, value);
    Flow::Next
}

fn unaligned_rm(state: &mut State, op: &Op) -> Flow {
    let Some(bytes) = state.memory.load_bytes(op.address(state)) else {
        return Flow::Stop;
    };
    set_xmm(state, op.dst, u128::from_le_bytes(bytes));
    Flow::Next
}

fn unaligned_mr(state: &mut State, op: &Op) -> Flow {
    let bytes = xmm(state, op.src).to_le_bytes();
    flow(state.memory.store_bytes(op.address(state), bytes))
}

fn aligned_rm(state: &mut State, op: &Op) -> Flow {
    if aligned(state, op.address(state)).is_none() {
        return Flow::Stop;
    }
    unaligned_rm(state, op)
}

fn aligned_mr(state: &mut State, op: &Op) -> Flow {
    if aligned(state, op.address(state)).is_none() {
        return Flow::Stop;
    }
    unaligned_mr(state, op)
}

/// Loads the lowest `W` bits; the rest is zero.
fn low_rm<const W: u32>(state: &mut State, op: &Op) -> Flow {
    let Some(value) = state.load::<W>(op.address(state)) else {
        return Flow::Stop;
    };
    set_xmm(state, op.dst, value.into());
    Flow::Next
}

fn low_mr<const W: u32>(state: &mut State, op: &Op) -> Flow {
    let value = xmm(state, op.src) as u64;
    flow(state.store::<W>(op.address(state), value))
}

fn low_rr(state: &mut State, op: &Op) -> Flow {
    let value = xmm(state, op.src) as u64;
    set_xmm(state, op.dst, value.into());
    Flow::Next
}

fn high_mr(state: &mut State, op: &Op) -> Flow {
    let value = (xmm(state, op.src) >> 64) as u64;
    flow(state.store::<64>(op.address(state), value))
}

/// Copies the lowest `W` bits; the rest does not change.
fn keep_rr<const W: u32>(state: &mut State, op: &Op) -> Flow {
    let low = u128::from(mask::<W>());
    let value = xmm(state, op.dst) & !low | xmm(state, op.src) & low;
    set_xmm(state, op.dst, value);
    Flow::Next
}

fn keep_high_rm(state: &mut State, op: &Op) -> Flow {
    let Some(value) = state.load::<64>(op.address(state)) else {
        return Flow::Stop;
    };
    let high = xmm(state, op.dst) >> 64 << 64;
    set_xmm(state, op.dst, high | u128::from(value));
    Flow::Next
}

fn keep_low_rm(state: &mut State, op: &Op) -> Flow {
    let Some(value) = state.load::<64>(op.address(state)) else {
        return Flow::Stop;
    };
    let low = u128::from(xmm(state, op.dst) as u64);
    set_xmm(state, op.dst, low | u128::from(value) << 64);
    Flow::Next
}

fn from_general_rr<const W: u32>(state: &mut State, op: &Op) -> Flow {
    let value = state.get::<W>(op.src);
    set_xmm(state, op.dst, value.into());
    Flow::Next
}

fn to_general_rr<const W: u32>(state: &mut State, op: &Op) -> Flow {
    let value = xmm(state, op.src) as u64;
    state.set::<W>(op.dst, value);
    Flow::Next
}
