//! SSE to SSE4.2 on the registers xmm0 to xmm15, and the instructions of AVX and AVX2 with the same
//! functions.
//!
//! Most instructions are one function of two registers and an immediate: [`packed::Packed`] for
//! integers and bits, [`float::Float`] for what uses MXCSR. A table in each file gives the function
//! of each mnemonic. Not here: crc32 and popcnt, moves and conversions of mm registers, AES,
//! PCLMUL, SHA and what only AMD has (SSE4A).

mod control;
pub(super) mod convert;
mod extract;
pub(super) mod float;
mod integer;
pub(super) mod lanes;
mod moves;
pub(super) mod packed;
pub(super) mod registers;
mod shift;
pub(super) mod shuffle;
mod string;
#[cfg(test)]
pub(super) mod tests;
pub(super) mod wide;

use crate::op::{Op, Run};
use iced_x86::Instruction;

pub(super) fn select(insn: &Instruction, op: &mut Op) -> Option<Run> {
    let registers = || (0..insn.op_count()).map(|number| insn.op_register(number));
    if registers().any(|register| register.is_mm()) {
        return None;
    }
    if !registers().any(|register| register.is_xmm()) {
        return control::select(insn).or_else(|| convert::select(insn));
    }
    moves::select(insn)
        .or_else(|| integer::select(insn))
        .or_else(|| shuffle::select(insn, op))
        .or_else(|| shift::select(insn))
        .or_else(|| extract::select(insn))
        .or_else(|| float::select(insn, op))
        .or_else(|| convert::select(insn))
        .or_else(|| string::select(insn))
        .or_else(|| control::select_masked_move(insn, op))
}

/// The function of a VEX-encoded instruction that has a legacy form. `extra` is the last register
/// source operand.
pub(super) fn select_vex(insn: &Instruction, op: &mut Op) -> Option<Run> {
    moves::select(insn)
        .or_else(|| integer::select(insn))
        .or_else(|| shuffle::select(insn, op))
        .or_else(|| shift::select(insn))
        .or_else(|| extract::select(insn))
        .or_else(|| float::select(insn, op))
        .or_else(|| convert::select(insn))
        .or_else(|| string::select(insn))
        .or_else(|| control::select(insn))
        .or_else(|| control::select_masked_move(insn, op))
}

/// The function of an integer instruction with mm registers.
pub(super) fn select_mm(insn: &Instruction, op: &mut Op) -> Option<Run> {
    op.extra = packed::arrangement(insn);
    integer::select(insn)
        .or_else(|| shuffle::select(insn, op))
        .or_else(|| shift::select(insn))
}
