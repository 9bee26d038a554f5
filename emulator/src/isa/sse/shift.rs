//! Shifts of lanes, by an immediate or by the lower half of the second operand, and of the whole
//! register by bytes.

use super::lanes::{Lane, in_memory};
use super::packed::{Packed, mm_ri, packed_table};
use super::registers::{first, set_result, set_ymm, ymm};
use super::wide::YmmForm;
use crate::core::Core;
use crate::op::{Flow, Op, Run};
use iced_x86::{EncodingKind, Instruction, Mnemonic, OpKind};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    let last = insn.op_count().checked_sub(1)?;
    if insn.op_kind(last) != OpKind::Immediate8 {
        return packed_function(insn);
    }
    Some(match insn.mnemonic() {
        Mnemonic::Psllw | Mnemonic::Vpsllw => by_immediate::<Psllw>(insn),
        Mnemonic::Pslld | Mnemonic::Vpslld => by_immediate::<Pslld>(insn),
        Mnemonic::Psllq | Mnemonic::Vpsllq => by_immediate::<Psllq>(insn),
        Mnemonic::Psrlw | Mnemonic::Vpsrlw => by_immediate::<Psrlw>(insn),
        Mnemonic::Psrld | Mnemonic::Vpsrld => by_immediate::<Psrld>(insn),
        Mnemonic::Psrlq | Mnemonic::Vpsrlq => by_immediate::<Psrlq>(insn),
        Mnemonic::Psraw | Mnemonic::Vpsraw => by_immediate::<Psraw>(insn),
        Mnemonic::Psrad | Mnemonic::Vpsrad => by_immediate::<Psrad>(insn),
        Mnemonic::Pslldq | Mnemonic::Vpslldq => by_immediate::<BytesLeft>(insn),
        Mnemonic::Psrldq | Mnemonic::Vpsrldq => by_immediate::<BytesRight>(insn),
        _ => return None,
    })
}

packed_table! {
    Psllw | Vpsllw [YmmForm::Shared] => shift(|a: u16, count| a.checked_shl(count).unwrap_or(0));
    Pslld | Vpslld [YmmForm::Shared] => shift(|a: u32, count| a.checked_shl(count).unwrap_or(0));
    Psllq | Vpsllq [YmmForm::Shared] => shift(|a: u64, count| a.checked_shl(count).unwrap_or(0));
    Psrlw | Vpsrlw [YmmForm::Shared] => shift(|a: u16, count| a.checked_shr(count).unwrap_or(0));
    Psrld | Vpsrld [YmmForm::Shared] => shift(|a: u32, count| a.checked_shr(count).unwrap_or(0));
    Psrlq | Vpsrlq [YmmForm::Shared] => shift(|a: u64, count| a.checked_shr(count).unwrap_or(0));
    Psraw | Vpsraw [YmmForm::Shared] => shift(|a: i16, count| a >> count.min(15));
    Psrad | Vpsrad [YmmForm::Shared] => shift(|a: i32, count| a >> count.min(31));
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

/// `pslldq`; the second operand is the number of bytes.
struct BytesLeft;

impl Packed for BytesLeft {
    #[inline(always)]
    fn apply(a: u128, b: u128, _: u8) -> u128 {
        a.checked_shl(8 * b as u32).unwrap_or(0)
    }
}

/// `psrldq`; the second operand is the number of bytes.
struct BytesRight;

impl Packed for BytesRight {
    #[inline(always)]
    fn apply(a: u128, b: u128, _: u8) -> u128 {
        a.checked_shr(8 * b as u32).unwrap_or(0)
    }
}

fn by_immediate<P: Packed>(insn: &Instruction) -> Run {
    match (insn.encoding(), insn.op_register(0)) {
        (_, register) if register.is_mm() => mm_ri::<P>,
        (_, register) if register.is_ymm() => ymm_ri::<P>,
        (EncodingKind::VEX, _) => xmm_ri::<P, true>,
        _ => xmm_ri::<P, false>,
    }
}

fn xmm_ri<P: Packed, const VEX: bool>(core: &mut Core, op: &Op) -> Flow {
    let count = u128::from(op.imm as u8);
    let result = P::apply(first::<VEX>(core, op), count, 0);
    set_result::<VEX>(core, op, result);
    Flow::Next
}

fn ymm_ri<P: Packed>(core: &mut Core, op: &Op) -> Flow {
    let count = u128::from(op.imm as u8);
    let result = ymm(core, op.src).map(|lane| P::apply(lane, count, 0));
    set_ymm(core, op.dst, result);
    Flow::Next
}
