//! Moves between lanes of xmm registers and general registers; sign masks; ptest.

use super::registers::{load, set_xmm, xmm};
use crate::flags::{self, Flags};
use crate::op::{Flow, Op, Run, flow};
use crate::operands::{Form, form};
use crate::state::{State, mask};
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    use Mnemonic::*;
    Some(match (insn.mnemonic(), form(insn)) {
        (Pinsrb, Form::RR) => insert_rr::<8>,
        (Pinsrb, Form::RM) => insert_rm::<8>,
        (Pinsrw, Form::RR) => insert_rr::<16>,
        (Pinsrw, Form::RM) => insert_rm::<16>,
        (Pinsrd, Form::RR) => insert_rr::<32>,
        (Pinsrd, Form::RM) => insert_rm::<32>,
        (Pinsrq, Form::RR) => insert_rr::<64>,
        (Pinsrq, Form::RM) => insert_rm::<64>,
        (Pextrb, Form::RR) => extract_rr::<8>,
        (Pextrb, Form::MR) => extract_mr::<8>,
        (Pextrw, Form::RR) => extract_rr::<16>,
        (Pextrw, Form::MR) => extract_mr::<16>,
        (Pextrd | Extractps, Form::RR) => extract_rr::<32>,
        (Pextrd | Extractps, Form::MR) => extract_mr::<32>,
        (Pextrq, Form::RR) => extract_rr::<64>,
        (Pextrq, Form::MR) => extract_mr::<64>,
        (Pmovmskb, Form::RR) => byte_signs,
        (Movmskps, Form::RR) => lane_signs::<32>,
        (Movmskpd, Form::RR) => lane_signs::<64>,
        (Ptest, Form::RR) => test_rr,
        (Ptest, Form::RM) => test_rm,
        _ => return None,
    })
}

/// The start of the lane that the immediate selects, bits.
#[inline(always)]
fn lane<const W: u32>(op: &Op) -> u32 {
    op.imm as u32 % (128 / W) * W
}

#[inline(always)]
fn insert<const W: u32>(state: &mut State, op: &Op, value: u64) {
    let at = lane::<W>(op);
    let rest = xmm(state, op.dst) & !(u128::from(mask::<W>()) << at);
    set_xmm(state, op.dst, rest | u128::from(value) << at);
}

fn insert_rr<const W: u32>(state: &mut State, op: &Op) -> Flow {
    let value = state.gpr[(op.src & 31) as usize] & mask::<W>();
    insert::<W>(state, op, value);
    Flow::Next
}

fn insert_rm<const W: u32>(state: &mut State, op: &Op) -> Flow {
    let Some(value) = state.load::<W>(op.address(state)) else {
        return Flow::Stop;
    };
    insert::<W>(state, op, value);
    Flow::Next
}

#[inline(always)]
fn extract<const W: u32>(state: &State, op: &Op) -> u64 {
    (xmm(state, op.src) >> lane::<W>(op)) as u64 & mask::<W>()
}

fn extract_rr<const W: u32>(state: &mut State, op: &Op) -> Flow {
    let value = extract::<W>(state, op);
    state.set::<64>(op.dst, value);
    Flow::Next
}

fn extract_mr<const W: u32>(state: &mut State, op: &Op) -> Flow {
    let value = extract::<W>(state, op);
    flow(state.store::<W>(op.address(state), value))
}

fn byte_signs(state: &mut State, op: &Op) -> Flow {
    // The multiplication moves the signs, which are a byte apart, next to each other at the top.
    let signs = |half: u64| (half & 0x8080_8080_8080_8080).wrapping_mul(0x2_0408_1020_4081) >> 56;
    let value = xmm(state, op.src);
    let result = signs(value as u64) | signs((value >> 64) as u64) << 8;
    state.set::<64>(op.dst, result);
    Flow::Next
}

fn lane_signs<const W: u32>(state: &mut State, op: &Op) -> Flow {
    let value = xmm(state, op.src);
    let sign = |i| (value >> (W * (i + 1) - 1)) as u64 & 1;
    let result = (0..128 / W).fold(0, |all, i| all | sign(i) << i);
    state.set::<64>(op.dst, result);
    Flow::Next
}

#[inline(always)]
fn test(state: &mut State, op: &Op, b: u128) -> Flow {
    let a = xmm(state, op.dst);
    let zf = if a & b == 0 { flags::ZF } else { 0 };
    let cf = if !a & b == 0 { flags::CF } else { 0 };
    state.flags = Flags::from_bits(zf | cf);
    Flow::Next
}

fn test_rr(state: &mut State, op: &Op) -> Flow {
    let b = xmm(state, op.src);
    test(state, op, b)
}

fn test_rm(state: &mut State, op: &Op) -> Flow {
    match load(state, op, 16) {
        Some(b) => test(state, op, b),
        None => Flow::Stop,
    }
}
