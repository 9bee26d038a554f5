//! What instructions do: one file for each group of instructions.
//!
//! Each file has a `select` that returns the function of an instruction, or `None` if it belongs to
//! another group. Semantics follow the Intel SDM, volume 2; where the SDM leaves a result
//! undefined, it is that of current processors, if they agree.

mod alu;
mod atomic;
mod bits;
mod branch;
mod condition;
pub(crate) mod cpuid;
mod flag;
mod mm;
mod mmx;
mod mov;
mod muldiv;
pub(crate) mod save;
mod segment;
mod shift;
mod sse;
mod stack;
mod string;
mod system;
#[cfg(test)]
mod tests;
mod x87;

use crate::op::{Op, Run};
use iced_x86::Instruction;

/// The function of an instruction whose operands are in `op`. `None` if it is not modelled.
pub(crate) fn select(insn: &Instruction, op: &mut Op) -> Option<Run> {
    alu::select(insn, op)
        .or_else(|| mov::select(insn, op))
        .or_else(|| branch::select(insn, op))
        .or_else(|| stack::select(insn, op))
        .or_else(|| shift::select(insn))
        .or_else(|| muldiv::select(insn))
        .or_else(|| bits::select(insn))
        .or_else(|| string::select(insn, op))
        .or_else(|| atomic::select(insn))
        .or_else(|| flag::select(insn))
        .or_else(|| segment::select(insn, op))
        .or_else(|| cpuid::select(insn))
        .or_else(|| sse::select(insn, op))
        .or_else(|| mmx::select(insn, op))
        .or_else(|| x87::select(insn, op))
        .or_else(|| save::select(insn, op))
        .or_else(|| system::select(insn))
}
