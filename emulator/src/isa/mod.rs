//! What instructions do: one file for each group of instructions.
//!
//! Each file has a `select` that returns the function of an instruction, or `None` if it belongs to
//! another group; `table` says which group to ask. Semantics follow the Intel SDM, volume 2; where the SDM leaves a result
//! undefined, it is that of current processors, if they agree.

mod alu;
mod atomic;
mod avx;
mod bits;
mod bmi;
mod branch;
mod condition;
pub(crate) mod cpuid;
mod crypto;
mod far;
mod flag;
mod fused;
mod mm;
mod mmx;
mod mov;
mod muldiv;
mod random;
pub(crate) mod save;
mod segment;
mod shift;
mod sse;
mod sse4a;
mod stack;
mod string;
mod system;
mod table;
#[cfg(test)]
mod tests;
mod x87;

pub(crate) use avx::{element_address, has_mask};
pub(crate) use fused::Fuser;
pub(crate) use table::select;

use crate::op::{Op, Run};
use iced_x86::Instruction;
