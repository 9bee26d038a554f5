//! The x87 unit: 80-bit floating point on a stack of registers.
//!
//! The arithmetic is in [`crate::float::x87`], the registers and their stack are in
//! [`crate::state::fpu`].
//!
//! Source: Intel SDM volume 1, chapter 8, and volume 2.

mod arithmetic;
mod compare;
mod control;
mod environment;
mod execute;
mod load_store;
mod transcendental;

pub(super) use execute::wait;

use crate::op::{Op, Run};
use crate::operands::segment;
use iced_x86::Instruction;

pub(super) fn select(insn: &Instruction, op: &mut Op) -> Option<Run> {
    let run = load_store::select(insn)
        .or_else(|| arithmetic::select(insn))
        .or_else(|| compare::select(insn))
        .or_else(|| transcendental::select(insn))
        .or_else(|| control::select(insn))
        .or_else(|| environment::select(insn))?;
    op.extra = segment(insn) as u8;
    Some(run)
}
