//! Instructions that move lanes: unpack, pack, shuffle, blend, align, widen, insertps.

use super::lanes::{Lane, in_memory, narrow, pick, widen};
use super::packed::packed_table;
use super::registers::{load, set_xmm, xmm};
use super::wide::YmmForm;
use crate::core::Core;
use crate::op::{Flow, Op, Run};
use crate::operands::{Form, form};
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction, op: &mut Op) -> Option<Run> {
    let form = form(insn);
    Some(match (insn.mnemonic(), form) {
        (Mnemonic::Insertps | Mnemonic::Vinsertps, _) if Form::has_memory(insn) => {
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
    Punpcklbw | Vpunpcklbw => pick::<u8>(unpack_low::<u8>);
    Punpcklwd | Vpunpcklwd => pick::<u16>(unpack_low::<u16>);
    Punpckldq | Unpcklps | Vpunpckldq | Vunpcklps => pick::<u32>(unpack_low::<u32>);
    Punpcklqdq | Unpcklpd | Movlhps | Vpunpcklqdq | Vunpcklpd | Vmovlhps => |a, b, _| low(a) | b << 64;
    Punpckhbw | Vpunpckhbw => pick::<u8>(unpack_high::<u8>);
    Punpckhwd | Vpunpckhwd => pick::<u16>(unpack_high::<u16>);
    Punpckhdq | Unpckhps | Vpunpckhdq | Vunpckhps => pick::<u32>(unpack_high::<u32>);
    Punpckhqdq | Unpckhpd | Vpunpckhqdq | Vunpckhpd => |a, b, _| a >> 64 | high(b);
    Movhlps | Vmovhlps => |a, b, _| high(a) | b >> 64;
    Movddup | Vmovddup(8) => |_, b, _| low(b) | b << 64;
    Movsldup | Vmovsldup => pick::<u32>(|i, _| 4 + (i & 2));
    Movshdup | Vmovshdup => pick::<u32>(|i, _| 4 + (i | 1));

    Pshufd | Vpshufd => pick::<u32>(|i, imm| 4 + (imm >> (2 * i) & 3));
    Pshuflw | Pshufw | Vpshuflw => pick::<u16>(|i, imm| 8 + if i < 4 { imm >> (2 * i) & 3 } else { i });
    Pshufhw | Vpshufhw => pick::<u16>(|i, imm| 8 + if i < 4 { i } else { 4 + (imm >> (2 * (i - 4)) & 3) });
    Shufps | Vshufps => pick::<u32>(|i, imm| (imm >> (2 * i) & 3) + if i < 2 { 0 } else { 4 });
    Shufpd | Vshufpd [YmmForm::Lanes(2)] => pick::<u64>(|i, imm| (imm >> i & 1) + 2 * i);
    Blendps | Vblendps | Vpblendd [YmmForm::Lanes(4)] => pick::<u32>(|i, imm| i + (imm >> i & 1) * 4);
    Blendpd | Vblendpd [YmmForm::Lanes(2)] => pick::<u64>(|i, imm| i + (imm >> i & 1) * 2);
    Pblendw | Vpblendw => pick::<u16>(|i, imm| i + (imm >> i & 1) * 8);
    Palignr | Vpalignr => |a, b, imm| {
        let bits = 8 * u32::from(imm);
        let from_b = b.checked_shr(bits).unwrap_or(0);
        let from_a = match bits {
            0..128 => a.checked_shl(128 - bits).unwrap_or(0),
            _ => a.checked_shr(bits - 128).unwrap_or(0),
        };
        from_a | from_b
    };
    Pshufb | Vpshufb => in_memory(|a, b, _, result| {
        for i in 0..16 {
            let number = b[i];
            result[i] = if number < 0x80 { a[usize::from(number & 15)] } else { 0 };
        }
    });
    Insertps | Vinsertps(4) => |a, b, imm| {
        let lane = b >> (32 * (imm >> 6)) & 0xffff_ffff;
        let at = 32 * (imm >> 4 & 3);
        let zero = (0..4).filter(|i| imm >> i & 1 != 0);
        let zero = zero.fold(0, |mask, i| mask | 0xffff_ffff << (32 * i));
        (a & !(0xffff_ffff << at) | lane << at) & !zero
    };

    Packsswb | Vpacksswb => narrow(|a: i16| a.clamp(i8::MIN.into(), i8::MAX.into()) as i8);
    Packssdw | Vpackssdw => narrow(|a: i32| a.clamp(i16::MIN.into(), i16::MAX.into()) as i16);
    Packuswb | Vpackuswb => narrow(|a: i16| a.clamp(0, u8::MAX.into()) as u8);
    Packusdw | Vpackusdw => narrow(|a: i32| a.clamp(0, u16::MAX.into()) as u16);
    Pmovsxbw | Vpmovsxbw(8) [YmmForm::Widening] => widen::<i8, i16>();
    Pmovsxbd | Vpmovsxbd(4) [YmmForm::Widening] => widen::<i8, i32>();
    Pmovsxbq | Vpmovsxbq(2) [YmmForm::Widening] => widen::<i8, i64>();
    Pmovsxwd | Vpmovsxwd(8) [YmmForm::Widening] => widen::<i16, i32>();
    Pmovsxwq | Vpmovsxwq(4) [YmmForm::Widening] => widen::<i16, i64>();
    Pmovsxdq | Vpmovsxdq(8) [YmmForm::Widening] => widen::<i32, i64>();
    Pmovzxbw | Vpmovzxbw(8) [YmmForm::Widening] => widen::<u8, u16>();
    Pmovzxbd | Vpmovzxbd(4) [YmmForm::Widening] => widen::<u8, u32>();
    Pmovzxbq | Vpmovzxbq(2) [YmmForm::Widening] => widen::<u8, u64>();
    Pmovzxwd | Vpmovzxwd(8) [YmmForm::Widening] => widen::<u16, u32>();
    Pmovzxwq | Vpmovzxwq(4) [YmmForm::Widening] => widen::<u16, u64>();
    Pmovzxdq | Vpmovzxdq(8) [YmmForm::Widening] => widen::<u32, u64>();
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
pub(in crate::isa) fn blend<T: Lane>(a: u128, b: u128, mask: u128) -> u128 {
    let bits = 128 / T::COUNT as u32;
    let ones = u128::MAX >> (128 - bits);
    let lanes = (0..T::COUNT as u32).filter(|i| mask >> (bits * (i + 1) - 1) & 1 != 0);
    let mask = lanes.fold(0, |all, i| all | ones << (bits * i));
    a & !mask | b & mask
}

fn blend_rr<T: Lane>(core: &mut Core, op: &Op) -> Flow {
    let (a, b) = (xmm(core, op.dst), xmm(core, op.src));
    set_xmm(core, op.dst, blend::<T>(a, b, xmm(core, 0)));
    Flow::Next
}

fn blend_rm<T: Lane>(core: &mut Core, op: &Op) -> Flow {
    let Some(b) = load::<false>(core, op, 16) else {
        return Flow::Stop;
    };
    let a = xmm(core, op.dst);
    set_xmm(core, op.dst, blend::<T>(a, b, xmm(core, 0)));
    Flow::Next
}
