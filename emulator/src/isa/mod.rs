//! What instructions do: one file for each group of them.
//!
//! Each has a `select` that gives the function of an instruction, or `None` if it is another
//! group's. Semantics follow the Intel SDM, volume 2; where the SDM leaves a result undefined, it
//! is what current processors do, if they agree.

mod alu;
mod atomic;
mod bits;
mod branch;
pub(crate) mod cpuid;
mod flag;
mod mmx;
mod mov;
mod muldiv;
pub(crate) mod save;
pub(crate) mod segment;
mod shift;
mod sse;
mod stack;
mod string;
mod system;
#[cfg(test)]
mod tests;
pub(crate) mod x87;

use crate::flags::Flags;
use crate::op::{Flow, Op, Run};
use crate::state::State;
use iced_x86::Instruction;

/// The function of an instruction; `op` has its operands. `None` if it is not modelled.
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

/// Changes the first operand, in memory or a register, and the flags.
#[inline(always)]
fn modify<const MEMORY: bool, const W: u32>(
    state: &mut State,
    op: &Op,
    new: impl FnOnce(u64, Flags) -> (u64, Flags),
) -> Flow {
    if !MEMORY {
        let (result, flags) = new(state.get::<W>(op.dst), state.flags);
        state.set::<W>(op.dst, result);
        state.flags = flags;
        return Flow::Next;
    }
    let address = op.address(state);
    let Some(a) = state.load_to_store::<W>(address) else {
        return Flow::Stop;
    };
    let (result, flags) = new(a, state.flags);
    if state.store::<W>(address, result).is_none() {
        return Flow::Stop;
    }
    state.flags = flags;
    Flow::Next
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
