//! Moves of whole registers and of their lower and upper parts.

use super::registers::{
    aligned, first, load_wide, second, set_result, set_ymm, store_wide, xmm, ymm,
};
use super::wide::is_wide;
use crate::core::Core;
use crate::op::{Flow, Op, Run, flow};
use crate::operands::{Form, form};
use crate::state::mask;
use iced_x86::{EncodingKind, Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    match insn.encoding() {
        EncodingKind::Legacy => select_legacy(insn),
        EncodingKind::VEX if is_wide(insn) => select_wide(insn),
        EncodingKind::VEX => select_vex(insn),
        _ => None,
    }
}

fn select_legacy(insn: &Instruction) -> Option<Run> {
    use Mnemonic::*;
    let from_general = insn.op_register(1).is_gpr();
    let to_general = insn.op_register(0).is_gpr();

    Some(match (insn.mnemonic(), form(insn)) {
        (Movaps | Movapd | Movdqa | Movups | Movupd | Movdqu, Form::RR) => whole_rr::<false>,
        (Movups | Movupd | Movdqu | Lddqu, Form::RM) => unaligned_rm::<false>,
        (Movups | Movupd | Movdqu, Form::MR) => unaligned_mr,
        // These raise #GP at an address that is not a multiple of 16 (SDM volume 2).
        (Movaps | Movapd | Movdqa | Movntdqa, Form::RM) => aligned_rm::<false>,
        (Movaps | Movapd | Movdqa | Movntps | Movntpd | Movntdq, Form::MR) => aligned_mr,
        // From a register, the rest of the destination stays; from memory, below, it becomes zero.
        (Movss, Form::RR) => keep_rr::<32, false>,
        (Movsd, Form::RR) => keep_rr::<64, false>,
        (Movd, Form::RR) if from_general => from_general_rr::<32, false>,
        (Movq, Form::RR) if from_general => from_general_rr::<64, false>,
        (Movd, Form::RR) if to_general => to_general_rr::<32>,
        (Movq, Form::RR) if to_general => to_general_rr::<64>,
        // Unlike `movsd`, this also clears the upper half when it copies a register.
        (Movq, Form::RR) => low_rr::<false>,
        (Movss | Movd, Form::RM) => low_rm::<32, false>,
        (Movsd | Movq, Form::RM) => low_rm::<64, false>,
        (Movss | Movd, Form::MR) => low_mr::<32>,
        (Movsd | Movq | Movlps | Movlpd, Form::MR) => low_mr::<64>,
        (Movhps | Movhpd, Form::MR) => high_mr,
        (Movlps | Movlpd, Form::RM) => keep_high_rm::<false>,
        (Movhps | Movhpd, Form::RM) => keep_low_rm::<false>,
        _ => return None,
    })
}

fn select_vex(insn: &Instruction) -> Option<Run> {
    use Mnemonic::*;
    let from_general = insn.op_register(1).is_gpr();
    let to_general = insn.op_register(0).is_gpr();
    // With three operands, the second one gives the rest of the result.
    let merges = insn.op_count() == 3;

    Some(match (insn.mnemonic(), form(insn)) {
        (Vmovaps | Vmovapd | Vmovdqa | Vmovups | Vmovupd | Vmovdqu, Form::RR) => whole_rr::<true>,
        (Vmovups | Vmovupd | Vmovdqu | Vlddqu, Form::RM) => unaligned_rm::<true>,
        (Vmovups | Vmovupd | Vmovdqu, Form::MR) => unaligned_mr,
        // #GP at an address that is not a multiple of the operand's size, 16 or 32 bytes.
        (Vmovaps | Vmovapd | Vmovdqa | Vmovntdqa, Form::RM) => aligned_rm::<true>,
        (Vmovaps | Vmovapd | Vmovdqa | Vmovntps | Vmovntpd | Vmovntdq, Form::MR) => aligned_mr,
        (Vmovss, Form::RR) if merges => keep_rr::<32, true>,
        (Vmovsd, Form::RR) if merges => keep_rr::<64, true>,
        (Vmovd, Form::RR) if from_general => from_general_rr::<32, true>,
        (Vmovq, Form::RR) if from_general => from_general_rr::<64, true>,
        (Vmovd, Form::RR) if to_general => to_general_rr::<32>,
        (Vmovq, Form::RR) if to_general => to_general_rr::<64>,
        (Vmovq, Form::RR) => low_rr::<true>,
        (Vmovss | Vmovd, Form::RM) => low_rm::<32, true>,
        (Vmovsd | Vmovq, Form::RM) => low_rm::<64, true>,
        (Vmovss | Vmovd, Form::MR) => low_mr::<32>,
        (Vmovsd | Vmovq | Vmovlps | Vmovlpd, Form::MR) => low_mr::<64>,
        (Vmovhps | Vmovhpd, Form::MR) => high_mr,
        (Vmovlps | Vmovlpd, Form::RR) if merges => keep_high_rm::<true>,
        (Vmovhps | Vmovhpd, Form::RR) if merges => keep_low_rm::<true>,
        _ => return None,
    })
}

fn select_wide(insn: &Instruction) -> Option<Run> {
    use Mnemonic::*;
    Some(match (insn.mnemonic(), form(insn)) {
        (Vmovaps | Vmovapd | Vmovdqa | Vmovups | Vmovupd | Vmovdqu, Form::RR) => wide_rr,
        (Vmovups | Vmovupd | Vmovdqu | Vlddqu, Form::RM) => wide_rm,
        (Vmovups | Vmovupd | Vmovdqu, Form::MR) => wide_mr,
        (Vmovaps | Vmovapd | Vmovdqa | Vmovntdqa, Form::RM) => wide_aligned_rm,
        (Vmovaps | Vmovapd | Vmovdqa | Vmovntps | Vmovntpd | Vmovntdq, Form::MR) => wide_aligned_mr,
        _ => return None,
    })
}

fn wide_rr(core: &mut Core, op: &Op) -> Flow {
    let value = ymm(core, op.src);
    set_ymm(core, op.dst, value);
    Flow::Next
}

fn wide_rm(core: &mut Core, op: &Op) -> Flow {
    let Some(value) = load_wide(core, op, 32) else {
        return Flow::Stop;
    };
    set_ymm(core, op.dst, value);
    Flow::Next
}

fn wide_mr(core: &mut Core, op: &Op) -> Flow {
    let value = ymm(core, op.src);
    flow(store_wide(core, op, value))
}

fn wide_aligned_rm(core: &mut Core, op: &Op) -> Flow {
    if aligned(core, op.address(core), 32).is_none() {
        return Flow::Stop;
    }
    wide_rm(core, op)
}

fn wide_aligned_mr(core: &mut Core, op: &Op) -> Flow {
    if aligned(core, op.address(core), 32).is_none() {
        return Flow::Stop;
    }
    wide_mr(core, op)
}

fn whole_rr<const VEX: bool>(core: &mut Core, op: &Op) -> Flow {
    let value = xmm(core, op.src);
    set_result::<VEX>(core, op, value);
    Flow::Next
}

fn unaligned_rm<const VEX: bool>(core: &mut Core, op: &Op) -> Flow {
    let Some(bytes) = core.memory.load_bytes(op.address(core)) else {
        return Flow::Stop;
    };
    set_result::<VEX>(core, op, u128::from_le_bytes(bytes));
    Flow::Next
}

fn unaligned_mr(core: &mut Core, op: &Op) -> Flow {
    let bytes = xmm(core, op.src).to_le_bytes();
    flow(core.memory.store_bytes(op.address(core), bytes))
}

fn aligned_rm<const VEX: bool>(core: &mut Core, op: &Op) -> Flow {
    if aligned(core, op.address(core), 16).is_none() {
        return Flow::Stop;
    }
    unaligned_rm::<VEX>(core, op)
}

fn aligned_mr(core: &mut Core, op: &Op) -> Flow {
    if aligned(core, op.address(core), 16).is_none() {
        return Flow::Stop;
    }
    unaligned_mr(core, op)
}

/// Loads the lowest `W` bits; the rest is zero.
fn low_rm<const W: u32, const VEX: bool>(core: &mut Core, op: &Op) -> Flow {
    let Some(value) = core.load::<W>(op.address(core)) else {
        return Flow::Stop;
    };
    set_result::<VEX>(core, op, value.into());
    Flow::Next
}

fn low_mr<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let value = xmm(core, op.src) as u64;
    flow(core.store::<W>(op.address(core), value))
}

fn low_rr<const VEX: bool>(core: &mut Core, op: &Op) -> Flow {
    let value = xmm(core, op.src) as u64;
    set_result::<VEX>(core, op, value.into());
    Flow::Next
}

fn high_mr(core: &mut Core, op: &Op) -> Flow {
    let value = (xmm(core, op.src) >> 64) as u64;
    flow(core.store::<64>(op.address(core), value))
}

/// Copies the lowest `W` bits; the rest does not change.
fn keep_rr<const W: u32, const VEX: bool>(core: &mut Core, op: &Op) -> Flow {
    let low = u128::from(mask::<W>());
    let value = first::<VEX>(core, op) & !low | xmm(core, second::<VEX>(op)) & low;
    set_result::<VEX>(core, op, value);
    Flow::Next
}

fn keep_high_rm<const VEX: bool>(core: &mut Core, op: &Op) -> Flow {
    let Some(value) = core.load::<64>(op.address(core)) else {
        return Flow::Stop;
    };
    let high = first::<VEX>(core, op) >> 64 << 64;
    set_result::<VEX>(core, op, high | u128::from(value));
    Flow::Next
}

fn keep_low_rm<const VEX: bool>(core: &mut Core, op: &Op) -> Flow {
    let Some(value) = core.load::<64>(op.address(core)) else {
        return Flow::Stop;
    };
    let low = u128::from(first::<VEX>(core, op) as u64);
    set_result::<VEX>(core, op, low | u128::from(value) << 64);
    Flow::Next
}

fn from_general_rr<const W: u32, const VEX: bool>(core: &mut Core, op: &Op) -> Flow {
    let value = core.state.get::<W>(op.src);
    set_result::<VEX>(core, op, value.into());
    Flow::Next
}

fn to_general_rr<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let value = xmm(core, op.src) as u64;
    core.state.set::<W>(op.dst, value);
    Flow::Next
}
