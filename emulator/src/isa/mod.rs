//! What instructions do: one file for each group of them.
//!
//! Each has a `select` that gives the function of an instruction, or `None` if it is another
//! group's. Semantics follow the Intel SDM, volume 2; where the SDM leaves a result undefined, it
//! is what current processors do, if they agree.

mod alu;
mod branch;
mod mov;
mod stack;
mod system;

use crate::op::{Op, Run};
use iced_x86::Instruction;

/// The function of an instruction; `op` has its operands. `None` if it is not modelled.
pub(crate) fn select(insn: &Instruction, op: &mut Op) -> Option<Run> {
    alu::select(insn, op)
        .or_else(|| mov::select(insn, op))
        .or_else(|| branch::select(insn, op))
        .or_else(|| stack::select(insn, op))
        .or_else(|| system::select(insn))
}

/// A function for one of the 16 conditions.
macro_rules! by_condition {
    ($insn:expr, $run:ident $(, $parameter:tt)*) => {
        match $insn.condition_code() as u8 {
            1 => $run::<0 $(, $parameter)*>,
            2 => $run::<1 $(, $parameter)*>,
            3 => $run::<2 $(, $parameter)*>,
            4 => $run::<3 $(, $parameter)*>,
            5 => $run::<4 $(, $parameter)*>,
            6 => $run::<5 $(, $parameter)*>,
            7 => $run::<6 $(, $parameter)*>,
            8 => $run::<7 $(, $parameter)*>,
            9 => $run::<8 $(, $parameter)*>,
            10 => $run::<9 $(, $parameter)*>,
            11 => $run::<10 $(, $parameter)*>,
            12 => $run::<11 $(, $parameter)*>,
            13 => $run::<12 $(, $parameter)*>,
            14 => $run::<13 $(, $parameter)*>,
            15 => $run::<14 $(, $parameter)*>,
            16 => $run::<15 $(, $parameter)*>,
            _ => return None,
        }
    };
}
pub(crate) use by_condition;
