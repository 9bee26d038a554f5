//! Conversions between floating-point formats, and between them and integers.

use super::float::{Control, float_table};
use super::registers::{first, load, second, set_result, xmm};
use super::wide::YmmForm;
use crate::core::Core;
use crate::flags::sign_extend;
use crate::float::Rounding;
use crate::float::sse::{
    Element, IntegerWidth, from_integer, to_binary32, to_binary64, to_integer,
};
use crate::op::{Flow, Op, Run};
use crate::operands::{Form, form, width};
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    use Mnemonic::*;
    Some(match (insn.mnemonic(), form(insn), width(insn, 0)) {
        (Cvtss2si | Vcvtss2si, form, width) => to_general_function::<u32, false>(form, width)?,
        (Cvtsd2si | Vcvtsd2si, form, width) => to_general_function::<u64, false>(form, width)?,
        (Cvttss2si | Vcvttss2si, form, width) => to_general_function::<u32, true>(form, width)?,
        (Cvttsd2si | Vcvttsd2si, form, width) => to_general_function::<u64, true>(form, width)?,
        (Cvtsi2ss, form, _) => from_general::<u32, false>(form, width(insn, 1))?,
        (Cvtsi2sd, form, _) => from_general::<u64, false>(form, width(insn, 1))?,
        (Vcvtsi2ss, _, _) => from_general::<u32, true>(last(insn), width(insn, 2))?,
        (Vcvtsi2sd, _, _) => from_general::<u64, true>(last(insn), width(insn, 2))?,
        _ => return float_function(insn),
    })
}

/// The form of an instruction with three operands, as if the first source operand were none.
fn last(insn: &Instruction) -> Form {
    if Form::has_memory(insn) {
        Form::RM
    } else {
        Form::RR
    }
}

fn to_general_function<T: Element, const TRUNCATE: bool>(form: Form, width: u32) -> Option<Run> {
    Some(match (form, width) {
        (Form::RR, 32) => to_general_rr::<T, TRUNCATE, 32>,
        (Form::RM, 32) => to_general_rm::<T, TRUNCATE, 32>,
        (Form::RR, 64) => to_general_rr::<T, TRUNCATE, 64>,
        (Form::RM, 64) => to_general_rm::<T, TRUNCATE, 64>,
        _ => return None,
    })
}

float_table! {
    Cvtss2sd | Vcvtss2sd(4) => |control, a, b, _| {
        let result = control.take(to_binary64(b as u32, control.env));
        a >> 64 << 64 | u128::from(result)
    };
    Cvtsd2ss | Vcvtsd2ss(8) => |control, a, b, _| {
        let result = control.take(to_binary32(b as u64, control.env));
        a >> 32 << 32 | u128::from(result)
    };
    Cvtps2pd | Vcvtps2pd(8) [YmmForm::Widening] => |control, _, b, _| {
        let low = control.take(to_binary64(b as u32, control.env));
        let high = control.take(to_binary64((b >> 32) as u32, control.env));
        u128::from(low) | u128::from(high) << 64
    };
    Cvtpd2ps | Vcvtpd2ps [YmmForm::Narrowing] => |control, _, b, _| {
        let low = control.take(to_binary32(b as u64, control.env));
        let high = control.take(to_binary32((b >> 64) as u64, control.env));
        u128::from(low) | u128::from(high) << 32
    };
    Cvtdq2ps | Vcvtdq2ps => |control, _, b, _| {
        (0..4).fold(0, |all, i| {
            let integer = i64::from((b >> (32 * i)) as i32);
            let lane: u32 = control.take(from_integer(integer, control.env));
            all | u128::from(lane) << (32 * i)
        })
    };
    Cvtdq2pd | Vcvtdq2pd(8) [YmmForm::Widening] => |control, _, b, _| {
        (0..2).fold(0, |all, i| {
            let integer = i64::from((b >> (32 * i)) as i32);
            let lane: u64 = control.take(from_integer(integer, control.env));
            all | u128::from(lane) << (64 * i)
        })
    };
    Cvtps2dq | Vcvtps2dq => |control, _, b, _| to_lanes::<u32>(control, b, control.env.rounding);
    Cvttps2dq | Vcvttps2dq => |control, _, b, _| to_lanes::<u32>(control, b, Rounding::Zero);
    Cvtpd2dq | Vcvtpd2dq [YmmForm::Narrowing] => |control, _, b, _| to_lanes::<u64>(control, b, control.env.rounding);
    Cvttpd2dq | Vcvttpd2dq [YmmForm::Narrowing] => |control, _, b, _| to_lanes::<u64>(control, b, Rounding::Zero);
}

/// Converts two 32-bit integers to `W`-bit numbers.
pub(in crate::isa) fn from_pair<const W: u32>(control: &mut Control, integers: u64) -> u128 {
    let mut convert = |integer: u64| -> u64 {
        let integer = i64::from(integer as i32);
        if W == 32 {
            let lane: u32 = control.take(from_integer(integer, control.env));
            lane.into()
        } else {
            control.take(from_integer(integer, control.env))
        }
    };
    let [low, high] = [convert(integers), convert(integers >> 32)];
    u128::from(low) | u128::from(high) << W
}

/// Converts two `W`-bit numbers to 32-bit integers.
pub(in crate::isa) fn to_pair<const W: u32>(
    control: &mut Control,
    floats: u128,
    rounding: Rounding,
) -> u64 {
    let result = if W == 32 {
        to_lanes::<u32>(control, (floats as u64).into(), rounding)
    } else {
        to_lanes::<u64>(control, floats, rounding)
    };
    result as u64
}

/// Converts all lanes to 32-bit integers, in the lowest lanes of the result.
fn to_lanes<T: Element>(control: &mut Control, b: u128, rounding: Rounding) -> u128 {
    let bits = 8 * size_of::<T>();
    (0..128 / bits).fold(0, |all, i| {
        let lane = T::narrow((b >> (bits * i)) as u64);
        let converted = to_integer(lane, IntegerWidth::Bits32, rounding, control.env);
        all | u128::from(control.take(converted) as u32) << (32 * i)
    })
}

#[inline(always)]
fn to_general<T: Element, const TRUNCATE: bool, const W: u32>(
    core: &mut Core,
    op: &Op,
    b: u128,
) -> Flow {
    let width = if W == 32 {
        IntegerWidth::Bits32
    } else {
        IntegerWidth::Bits64
    };
    let mut control = Control::new(core);
    let rounding = if TRUNCATE {
        Rounding::Zero
    } else {
        control.env.rounding
    };
    let lane = T::narrow(b as u64);
    let result = control.take(to_integer(lane, width, rounding, control.env));
    if control.finish(core).is_none() {
        return Flow::Stop;
    }
    core.state.set::<W>(op.dst, result.cast_unsigned());
    Flow::Next
}

fn to_general_rr<T: Element, const TRUNCATE: bool, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let b = xmm(core, op.src);
    to_general::<T, TRUNCATE, W>(core, op, b)
}

fn to_general_rm<T: Element, const TRUNCATE: bool, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    match load::<true>(core, op, size_of::<T>()) {
        Some(b) => to_general::<T, TRUNCATE, W>(core, op, b),
        None => Flow::Stop,
    }
}

fn from_general<T: Element, const VEX: bool>(form: Form, width: u32) -> Option<Run> {
    Some(match (form, width) {
        (Form::RR, 32) => from_general_rr::<T, 32, VEX>,
        (Form::RR, 64) => from_general_rr::<T, 64, VEX>,
        (Form::RM, 32) => from_general_rm::<T, 32, VEX>,
        (Form::RM, 64) => from_general_rm::<T, 64, VEX>,
        _ => return None,
    })
}

#[inline(always)]
fn from_integer_to<T: Element, const VEX: bool>(core: &mut Core, op: &Op, integer: u64) -> Flow {
    let mut control = Control::new(core);
    let result: T = control.take(from_integer(integer.cast_signed(), control.env));
    if control.finish(core).is_none() {
        return Flow::Stop;
    }
    let bits = 8 * size_of::<T>();
    let rest = first::<VEX>(core, op) >> bits << bits;
    set_result::<VEX>(core, op, rest | u128::from(result.widen()));
    Flow::Next
}

fn from_general_rr<T: Element, const W: u32, const VEX: bool>(core: &mut Core, op: &Op) -> Flow {
    let integer = sign_extend::<W>(core.state.get::<W>(second::<VEX>(op)));
    from_integer_to::<T, VEX>(core, op, integer)
}

fn from_general_rm<T: Element, const W: u32, const VEX: bool>(core: &mut Core, op: &Op) -> Flow {
    match core.load::<W>(op.address(core)) {
        Some(integer) => from_integer_to::<T, VEX>(core, op, sign_extend::<W>(integer)),
        None => Flow::Stop,
    }
}
