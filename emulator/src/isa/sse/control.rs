//! ldmxcsr and stmxcsr, movnti, maskmovdqu.

use super::registers::xmm;
use crate::core::Core;
use crate::op::{Flow, Op, Run, flow, raise};
use crate::operands::{Form, form, width};
use crate::processor::Vendor;
use crate::state::reg;
use crate::stop::Exception;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    Some(match (insn.mnemonic(), form(insn), width(insn, 0)) {
        (Mnemonic::Ldmxcsr | Mnemonic::Vldmxcsr, Form::M, _) => load_mxcsr,
        (Mnemonic::Stmxcsr | Mnemonic::Vstmxcsr, Form::M, _) => store_mxcsr,
        (Mnemonic::Movnti, Form::MR, 32) => store::<32>,
        (Mnemonic::Movnti, Form::MR, 64) => store::<64>,
        _ => return None,
    })
}

fn load_mxcsr(core: &mut Core, op: &Op) -> Flow {
    let Some(value) = core.load::<32>(op.address(core)) else {
        return Flow::Stop;
    };
    if value as u32 & !core.processor.mxcsr_mask() != 0 {
        return raise(core, Exception::GeneralProtection);
    }
    core.state.mxcsr = value as u32;
    Flow::Next
}

fn store_mxcsr(core: &mut Core, op: &Op) -> Flow {
    let value = core.state.mxcsr.into();
    flow(core.store::<32>(op.address(core), value))
}

fn store<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let value = core.state.get::<W>(op.src);
    flow(core.store::<W>(op.address(core), value))
}

/// `maskmovdqu` and `vmaskmovdqu`, the only ones whose memory is not an operand: it is at rdi.
pub(super) fn select_masked_move(insn: &Instruction, op: &mut Op) -> Option<Run> {
    if !matches!(
        insn.mnemonic(),
        Mnemonic::Maskmovdqu | Mnemonic::Vmaskmovdqu
    ) {
        return None;
    }
    op.base = reg::RDI as u8;
    op.index = match insn.memory_segment() {
        Register::FS => reg::FS as u8,
        Register::GS => reg::GS as u8,
        _ => reg::ZERO as u8,
    };
    match insn.op_kind(0) {
        OpKind::MemorySegRDI => Some(masked_move::<{ u64::MAX }>),
        OpKind::MemorySegEDI => Some(masked_move::<0xffff_ffff>),
        _ => None,
    }
}

/// Stores the bytes whose mask has its top bit set.
///
/// All 16 must be writable. Intel's processors check the upper half first (seen on a Xeon of the
/// fourth generation), AMD's the lower half (seen on an EPYC, family 25, model 1); the manuals
/// leave this open.
fn masked_move<const ADDRESS_BITS: u64>(core: &mut Core, op: &Op) -> Flow {
    let base = core.state.gpr[reg::RDI] & ADDRESS_BITS;
    let address = base.wrapping_add(core.state.gpr[(op.index & 31) as usize]);
    let mut halves = [address, address.wrapping_add(8)];
    if core.processor.vendor() == Vendor::Intel {
        halves.reverse();
    }
    for half in halves {
        if core.memory.check_store(half, 8).is_none() {
            return Flow::Stop;
        }
    }
    let data = xmm(core, op.src).to_le_bytes();
    let mask = xmm(core, op.extra).to_le_bytes();
    for ((i, byte), mask) in (0..).zip(data).zip(mask) {
        let at = address.wrapping_add(i);
        if mask & 0x80 != 0 && core.memory.store_bytes(at, [byte]).is_none() {
            return Flow::Stop;
        }
    }
    Flow::Next
}
