//! SSE4A: bit fields of xmm registers, and non-temporal stores of scalars. Only AMD has it.
//!
//! Source: AMD APM volume 4. Fields that reach over bit 63, and the upper halves of results, are
//! undefined there: the values here were measured on an AMD EPYC, family 26, model 2.

use super::sse::registers::{set_xmm, xmm};
use crate::core::Core;
use crate::op::{Flow, Op, Run, flow};
use crate::operands::{Form, form};
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    Some(match (insn.mnemonic(), form(insn)) {
        (Mnemonic::Extrq, Form::RR) => extract_r,
        (Mnemonic::Extrq, _) => extract_i,
        (Mnemonic::Insertq, _) if insn.op_count() == 2 => insert_r,
        (Mnemonic::Insertq, _) => insert_i,
        (Mnemonic::Movntss, _) => store::<32>,
        (Mnemonic::Movntsd, _) => store::<64>,
        _ => return None,
    })
}

/// The mask of the lowest `length` bits; a length of 0 is 64.
fn mask(length: u32) -> u64 {
    u64::MAX >> (64_u32.wrapping_sub(length) & 63)
}

fn extract(core: &mut Core, op: &Op, length: u32, start: u32) -> Flow {
    let from = xmm(core, op.dst) as u64;
    let field = from >> (start & 63) & mask(length);
    set_xmm(core, op.dst, field.into());
    Flow::Next
}

fn extract_i(core: &mut Core, op: &Op) -> Flow {
    extract(core, op, op.imm as u32, op.extra.into())
}

fn extract_r(core: &mut Core, op: &Op) -> Flow {
    let field = xmm(core, op.src);
    extract(core, op, field as u32, (field >> 8) as u32)
}

fn insert(core: &mut Core, op: &Op, length: u32, start: u32) -> Flow {
    let (to, from) = (xmm(core, op.dst) as u64, xmm(core, op.src) as u64);
    let (mask, start) = (mask(length), start & 63);
    let result = to & !(mask << start) | (from & mask) << start;
    set_xmm(core, op.dst, result.into());
    Flow::Next
}

fn insert_i(core: &mut Core, op: &Op) -> Flow {
    insert(core, op, op.imm as u32, op.extra.into())
}

fn insert_r(core: &mut Core, op: &Op) -> Flow {
    let field = xmm(core, op.src) >> 64;
    insert(core, op, field as u32, (field >> 8) as u32)
}

fn store<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    flow(core.store::<W>(op.address(core), xmm(core, op.src) as u64))
}
