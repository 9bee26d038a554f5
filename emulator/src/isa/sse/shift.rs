//! Shifts of lanes, by an immediate or by the lower half of the second operand, and of the whole
//! register by bytes.

use super::lanes::{Lane, in_memory};
use super::packed::{Packed, mm_ri, packed_table};
use super::registers::{set_xmm, xmm};
use crate::op::{Flow, Op, Run};
use crate::operands::{Form, form};
use crate::state::State;
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    if form(insn) != Form::RI {
        return packed_function(insn);
    }
    Some(match insn.mnemonic() {
        Mnemonic::Psllw => by_immediate::<Psllw>(insn),
        Mnemonic::Pslld => by_immediate::<Pslld>(insn),
        Mnemonic::Psllq => by_immediate::<Psllq>(insn),
        Mnemonic::Psrlw => by_immediate::<Psrlw>(insn),
        Mnemonic::Psrld => by_immediate::<Psrld>(insn),
        Mnemonic::Psrlq => by_immediate::<Psrlq>(insn),
        Mnemonic::Psraw => by_immediate::<Psraw>(insn),
        Mnemonic::Psrad => by_immediate::<Psrad>(insn),
        Mnemonic::Pslldq => bytes_left,
        Mnemonic::Psrldq => bytes_right,
        _ => return None,
    })
}

packed_table! {
    Psllw => shift(|a: u16, count| a.checked_shl(count).unwrap_or(0));
    Pslld => shift(|a: u32, count| a.checked_shl(count).unwrap_or(0));
    Psllq => shift(|a: u64, count| a.checked_shl(count).unwrap_or(0));
    Psrlw => shift(|a: u16, count| a.checked_shr(count).unwrap_or(0));
    Psrld => shift(|a: u32, count| a.checked_shr(count).unwrap_or(0));
    Psrlq => shift(|a: u64, count| a.checked_shr(count).unwrap_or(0));
    Psraw => shift(|a: i16, count| a >> count.min(15));
    Psrad => shift(|a: i32, count| a >> count.min(31));
}

#[inline(always)]
fn shift<T: Lane>(function: impl Fn(T, u32) -> T) -> impl Fn(u128, u128, u8) -> u128 {
    in_memory(move |a, b, _, result| {
        let count = u64::get(b, 0).min(u32::MAX.into()) as u32;
        for i in 0..T::COUNT {
            function(T::get(a, i), count).put(result, i);
        }
    })
}

fn by_immediate<P: Packed>(insn: &Instruction) -> Run {
    if insn.op_register(0).is_mm() {
        mm_ri::<P>
    } else {
        xmm_ri::<P>
    }
}

fn xmm_ri<P: Packed>(state: &mut State, op: &Op) -> Flow {
    let count = u128::from(op.imm as u8);
    let result = P::apply(xmm(state, op.dst), count, 0);
    set_xmm(state, op.dst, result);
    Flow::Next
}

fn bytes_left(state: &mut State, op: &Op) -> Flow {
    let bits = 8 * u32::from(op.imm as u8);
    let result = xmm(state, op.dst).checked_shl(bits).unwrap_or(0);
    set_xmm(state, op.dst, result);
    Flow::Next
}

fn bytes_right(state: &mut State, op: &Op) -> Flow {
    let bits = 8 * u32::from(op.imm as u8);
    let result = xmm(state, op.dst).checked_shr(bits).unwrap_or(0);
    set_xmm(state, op.dst, result);
    Flow::Next
}
