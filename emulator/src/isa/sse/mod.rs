//! SSE to SSE4.2 on the registers xmm0 to xmm15.
//!
//! Most instructions are one function of two registers and an immediate: [`Packed`] for integers
//! and bits, [`float::Float`] for what looks at MXCSR. A table in each file gives the function of
//! each mnemonic; the handlers for registers and memory are here. Not here: the forms with mm
//! registers, crc32 and popcnt, AES, PCLMUL, SHA and what only AMD has (SSE4A).

mod control;
pub(super) mod convert;
mod extract;
pub(super) mod float;
mod integer;
mod lanes;
mod moves;
mod shift;
mod shuffle;
mod string;
#[cfg(test)]
mod tests;

use super::mmx;
use crate::lower::{Form, form};
use crate::op::{Flow, Op, Run};
use crate::processor::MXCSR_MISALIGNED;
use crate::state::State;
use crate::stop::{Exception, Stop};
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
        .or_else(|| float::select(insn))
        .or_else(|| convert::select(insn))
        .or_else(|| string::select(insn))
        .or_else(|| control::select_masked_move(insn, op))
}

/// The function of an instruction of integers with mm registers, see [`mmx`].
pub(super) fn select_mm(insn: &Instruction, op: &mut Op) -> Option<Run> {
    integer::select(insn)
        .or_else(|| shuffle::select(insn, op))
        .or_else(|| shift::select(insn))
}

/// The new value of the first operand, a register, from its old one, the second operand and the
/// immediate byte.
pub(super) trait Packed {
    /// Bytes of the second operand, if it is memory: 2, 4, 8, or 16, aligned. The bits above are
    /// zero.
    const SOURCE: usize = 16;

    fn apply(a: u128, b: u128, imm: u8) -> u128;
}

/// The function of an instruction with the operands register and register or memory.
fn packed<P: Packed>(insn: &Instruction) -> Option<Run> {
    match (form(insn), insn.op_register(0).is_mm()) {
        (Form::RR, false) => Some(packed_rr::<P>),
        (Form::RM, false) => Some(packed_rm::<P>),
        (Form::RR, true) => Some(mmx::packed_rr::<P>),
        (Form::RM, true) => Some(mmx::packed_rm::<P>),
        _ => None,
    }
}

fn packed_rr<P: Packed>(state: &mut State, op: &Op) -> Flow {
    let (a, b) = (xmm(state, op.dst), xmm(state, op.src));
    set_xmm(state, op.dst, P::apply(a, b, op.imm as u8));
    Flow::Next
}

fn packed_rm<P: Packed>(state: &mut State, op: &Op) -> Flow {
    let Some(b) = load(state, op, P::SOURCE) else {
        return Flow::Stop;
    };
    let a = xmm(state, op.dst);
    set_xmm(state, op.dst, P::apply(a, b, op.imm as u8));
    Flow::Next
}

/// A table of mnemonics and what they do: functions of both operands and the immediate. In
/// parentheses the bytes of a memory operand that is not 16 bytes.
macro_rules! packed_table {
    ($($name:ident $(| $other:ident)* $(($size:literal))? => $function:expr;)*) => {
        $(
            struct $name;
            impl $crate::isa::sse::Packed for $name {
                $(const SOURCE: usize = $size;)?
                #[inline(always)]
                fn apply(a: u128, b: u128, imm: u8) -> u128 {
                    $crate::isa::sse::call($function, a, b, imm)
                }
            }
        )*

        fn packed_function(insn: &iced_x86::Instruction) -> Option<$crate::op::Run> {
            use iced_x86::Mnemonic;
            match insn.mnemonic() {
                $(Mnemonic::$name $(| Mnemonic::$other)* => {
                    $crate::isa::sse::packed::<$name>(insn)
                })*
                _ => None,
            }
        }
    };
}
use packed_table;

#[inline(always)]
fn call(function: impl Fn(u128, u128, u8) -> u128, a: u128, b: u128, imm: u8) -> u128 {
    function(a, b, imm)
}

#[inline(always)]
fn xmm(state: &State, number: u8) -> u128 {
    state.xmm[(number & 15) as usize]
}

#[inline(always)]
fn set_xmm(state: &mut State, number: u8, value: u128) {
    state.xmm[(number & 15) as usize] = value;
}

/// Loads 2, 4, 8 or 16 bytes; 16 have to be aligned, unless MXCSR.MM says that they need not.
#[inline(always)]
fn load(state: &mut State, op: &Op, size: usize) -> Option<u128> {
    let address = op.address(state);
    Some(match size {
        2 => state.load::<16>(address)?.into(),
        4 => state.load::<32>(address)?.into(),
        8 => state.load::<64>(address)?.into(),
        _ => {
            if state.mxcsr & MXCSR_MISALIGNED == 0 {
                aligned(state, address)?;
            }
            u128::from_le_bytes(state.memory.load_bytes(address)?)
        }
    })
}

/// `None`, and the exception, if the address of a 16-byte operand is not aligned.
#[inline(always)]
fn aligned(state: &mut State, address: u64) -> Option<()> {
    if address.is_multiple_of(16) {
        return Some(());
    }
    state.stop = Stop::Exception(Exception::GeneralProtection);
    None
}
