//! Instructions that move lanes: unpack, pack, shuffle, blend, align, widen, insertps.

use super::lanes::{Lane, in_memory, narrow, pick, widen};
use super::packed::packed_table;
use super::registers::{load, set_xmm, xmm};
use crate::op::{Flow, Op, Run};
use crate::operands::{Form, form};
use crate::state::State;
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction, op: &mut Op) -> Option<Run> {
    let form = form(insn);
    Some(match (insn.mnemonic(), form) {
        (Mnemonic::Insertps, Form::RM) => {
            // The lane of the source does not matter: memory has only one.
            op.imm &= 0x3f;
            return packed_function(insn);
        }
        (Mnemonic::Pblendvb, Form::RR) => blend_rr::<u8>,
        (Mnemonic::Pblendvb, Form::RM) => blend_rm::<u8>,
        (Mnemonic::Blendvps, Form::RR) => blend_rr::<u32>,
        (Mnemonic::Blendvps, Form::RM) => blend_rm::<u32>,
        (Mnemonic::Blendvpd, Form::RR) => blend_rr::<u64>,
        (Mnemonic::Blendvpd, Form::RM) => blend_rm::<u64>,
        _ => return packed_function(insn),
    })
}

packed_table! {
    Punpcklbw => pick::<u8>(unpack_low::<u8>);
    Punpcklwd => pick::<u16>(unpack_low::<u16>);
    Punpckldq | Unpcklps => pick::<u32>(unpack_low::<u32>);
    Punpcklqdq | Unpcklpd | Movlhps => |a, b, _| low(a) | b << 64;
    Punpckhbw => pick::<u8>(unpack_high::<u8>);
    Punpckhwd => pick::<u16>(unpack_high::<u16>);
    Punpckhdq | Unpckhps => pick::<u32>(unpack_high::<u32>);
    Punpckhqdq | Unpckhpd => |a, b, _| a >> 64 | high(b);
    Movhlps => |a, b, _| high(a) | b >> 64;
    Movddup(8) => |_, b, _| low(b) | b << 64;
    Movsldup => pick::<u32>(|i, _| 4 + (i & 2));
    Movshdup => pick::<u32>(|i, _| 4 + (i | 1));

    Pshufd => pick::<u32>(|i, imm| 4 + (imm >> (2 * i) & 3));
    Pshuflw | Pshufw => pick::<u16>(|i, imm| 8 + if i < 4 { imm >> (2 * i) & 3 } else { i });
    Pshufhw => pick::<u16>(|i, imm| 8 + if i < 4 { i } else { 4 + (imm >> (2 * (i - 4)) & 3) });
    Shufps => pick::<u32>(|i, imm| (imm >> (2 * i) & 3) + if i < 2 { 0 } else { 4 });
    Shufpd => pick::<u64>(|i, imm| (imm >> i & 1) + 2 * i);
    Blendps => pick::<u32>(|i, imm| i + (imm >> i & 1) * 4);
    Blendpd => pick::<u64>(|i, imm| i + (imm >> i & 1) * 2);
    Pblendw => pick::<u16>(|i, imm| i + (imm >> i & 1) * 8);
    Palignr => |a, b, imm| {
        let bits = 8 * u32::from(imm);
        let from_b = b.checked_shr(bits).unwrap_or(0);
        let from_a = match bits {
            0..128 => a.checked_shl(128 - bits).unwrap_or(0),
            _ => a.checked_shr(bits - 128).unwrap_or(0),
        };
        from_a | from_b
    };
    Pshufb => in_memory(|a, b, _, result| {
        for i in 0..16 {
            let number = b[i];
            result[i] = if number < 0x80 { a[usize::from(number & 15)] } else { 0 };
        }
    });
    Insertps(4) => |a, b, imm| {
        let lane = b >> (32 * (imm >> 6)) & 0xffff_ffff;
        let at = 32 * (imm >> 4 & 3);
        let zero = (0..4).filter(|i| imm >> i & 1 != 0);
        let zero = zero.fold(0, |mask, i| mask | 0xffff_ffff << (32 * i));
        (a & !(0xffff_ffff << at) | lane << at) & !zero
    };

    Packsswb => narrow(|a: i16| a.clamp(i8::MIN.into(), i8::MAX.into()) as i8);
    Packssdw => narrow(|a: i32| a.clamp(i16::MIN.into(), i16::MAX.into()) as i16);
    Packuswb => narrow(|a: i16| a.clamp(0, u8::MAX.into()) as u8);
    Packusdw => narrow(|a: i32| a.clamp(0, u16::MAX.into()) as u16);
    Pmovsxbw(8) => widen::<i8, i16>();
    Pmovsxbd(4) => widen::<i8, i32>();
    Pmovsxbq(2) => widen::<i8, i64>();
    Pmovsxwd(8) => widen::<i16, i32>();
    Pmovsxwq(4) => widen::<i16, i64>();
    Pmovsxdq(8) => widen::<i32, i64>();
    Pmovzxbw(8) => widen::<u8, u16>();
    Pmovzxbd(4) => widen::<u8, u32>();
    Pmovzxbq(2) => widen::<u8, u64>();
    Pmovzxwd(8) => widen::<u16, u32>();
    Pmovzxwq(4) => widen::<u16, u64>();
    Pmovzxdq(8) => widen::<u32, u64>();
}

#[inline(always)]
fn low(value: u128) -> u128 {
    value & u128::from(u64::MAX)
}

#[inline(always)]
fn high(value: u128) -> u128 {
    value & !u128::from(u64::MAX)
}

#[inline(always)]
fn unpack_low<T: Lane>(number: usize, _: usize) -> usize {
    number / 2 + number % 2 * T::COUNT
}

#[inline(always)]
fn unpack_high<T: Lane>(number: usize, imm: usize) -> usize {
    T::COUNT / 2 + unpack_low::<T>(number, imm)
}

/// Lanes of `b` where the lane in `mask` is negative, otherwise of `a`.
fn blend<T: Lane>(a: u128, b: u128, mask: u128) -> u128 {
    let bits = 128 / T::COUNT as u32;
    let ones = u128::MAX >> (128 - bits);
    let lanes = (0..T::COUNT as u32).filter(|i| mask >> (bits * (i + 1) - 1) & 1 != 0);
    let mask = lanes.fold(0, |all, i| all | ones << (bits * i));
    a & !mask | b & mask
}

fn blend_rr<T: Lane>(state: &mut State, op: &Op) -> Flow {
    let (a, b) = (xmm(state, op.dst), xmm(state, op.src));
    set_xmm(state, op.dst, blend::<T>(a, b, xmm(state, 0)));
    Flow::Next
}

fn blend_rm<T: Lane>(state: &mut State, op: &Op) -> Flow {
    let Some(b) = load(state, op, 16) else {
        return Flow::Stop;
    };
    let a = xmm(state, op.dst);
    set_xmm(state, op.dst, blend::<T>(a, b, xmm(state, 0)));
    Flow::Next
}
