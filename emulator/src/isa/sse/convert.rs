//! Conversions between floating-point formats, and between them and integers.

use super::float::{Control, float_table};
use super::registers::{load, set_xmm, xmm};
use crate::flags::sign_extend;
use crate::float::Rounding;
use crate::float::sse::{
    Element, IntegerWidth, from_integer, to_binary32, to_binary64, to_integer,
};
use crate::op::{Flow, Op, Run};
use crate::operands::{Form, form, width};
use crate::state::State;
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    use Mnemonic::*;
    Some(match (insn.mnemonic(), form(insn), width(insn, 0)) {
        (Cvtss2si, Form::RR, 32) => to_general_rr::<u32, false, 32>,
        (Cvtss2si, Form::RM, 32) => to_general_rm::<u32, false, 32>,
        (Cvtss2si, Form::RR, 64) => to_general_rr::<u32, false, 64>,
        (Cvtss2si, Form::RM, 64) => to_general_rm::<u32, false, 64>,
        (Cvtsd2si, Form::RR, 32) => to_general_rr::<u64, false, 32>,
        (Cvtsd2si, Form::RM, 32) => to_general_rm::<u64, false, 32>,
        (Cvtsd2si, Form::RR, 64) => to_general_rr::<u64, false, 64>,
        (Cvtsd2si, Form::RM, 64) => to_general_rm::<u64, false, 64>,
        (Cvttss2si, Form::RR, 32) => to_general_rr::<u32, true, 32>,
        (Cvttss2si, Form::RM, 32) => to_general_rm::<u32, true, 32>,
        (Cvttss2si, Form::RR, 64) => to_general_rr::<u32, true, 64>,
        (Cvttss2si, Form::RM, 64) => to_general_rm::<u32, true, 64>,
        (Cvttsd2si, Form::RR, 32) => to_general_rr::<u64, true, 32>,
        (Cvttsd2si, Form::RM, 32) => to_general_rm::<u64, true, 32>,
        (Cvttsd2si, Form::RR, 64) => to_general_rr::<u64, true, 64>,
        (Cvttsd2si, Form::RM, 64) => to_general_rm::<u64, true, 64>,
        (Cvtsi2ss, form, _) => from_general::<u32>(form, width(insn, 1))?,
        (Cvtsi2sd, form, _) => from_general::<u64>(form, width(insn, 1))?,
        _ => return float_function(insn),
    })
}

float_table! {
    Cvtss2sd(4) => |control, a, b, _| {
        let result = control.take(to_binary64(b as u32, control.env));
        a >> 64 << 64 | u128::from(result)
    };
    Cvtsd2ss(8) => |control, a, b, _| {
        let result = control.take(to_binary32(b as u64, control.env));
        a >> 32 << 32 | u128::from(result)
    };
    Cvtps2pd(8) => |control, _, b, _| {
        let low = control.take(to_binary64(b as u32, control.env));
        let high = control.take(to_binary64((b >> 32) as u32, control.env));
        u128::from(low) | u128::from(high) << 64
    };
    Cvtpd2ps => |control, _, b, _| {
        let low = control.take(to_binary32(b as u64, control.env));
        let high = control.take(to_binary32((b >> 64) as u64, control.env));
        u128::from(low) | u128::from(high) << 32
    };
    Cvtdq2ps => |control, _, b, _| {
        (0..4).fold(0, |all, i| {
            let integer = i64::from((b >> (32 * i)) as i32);
            let lane: u32 = control.take(from_integer(integer, control.env));
            all | u128::from(lane) << (32 * i)
        })
    };
    Cvtdq2pd(8) => |control, _, b, _| {
        (0..2).fold(0, |all, i| {
            let integer = i64::from((b >> (32 * i)) as i32);
            let lane: u64 = control.take(from_integer(integer, control.env));
            all | u128::from(lane) << (64 * i)
        })
    };
    Cvtps2dq => |control, _, b, _| to_lanes::<u32>(control, b, control.env.rounding);
    Cvttps2dq => |control, _, b, _| to_lanes::<u32>(control, b, Rounding::Zero);
    Cvtpd2dq => |control, _, b, _| to_lanes::<u64>(control, b, control.env.rounding);
    Cvttpd2dq => |control, _, b, _| to_lanes::<u64>(control, b, Rounding::Zero);
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
    state: &mut State,
    op: &Op,
    b: u128,
) -> Flow {
    let width = if W == 32 {
        IntegerWidth::Bits32
    } else {
        IntegerWidth::Bits64
    };
    let mut control = Control::new(state);
    let rounding = if TRUNCATE {
        Rounding::Zero
    } else {
        control.env.rounding
    };
    let lane = T::narrow(b as u64);
    let result = control.take(to_integer(lane, width, rounding, control.env));
    if control.finish(state).is_none() {
        return Flow::Stop;
    }
    state.set::<W>(op.dst, result.cast_unsigned());
    Flow::Next
}

fn to_general_rr<T: Element, const TRUNCATE: bool, const W: u32>(
    state: &mut State,
    op: &Op,
) -> Flow {
    let b = xmm(state, op.src);
    to_general::<T, TRUNCATE, W>(state, op, b)
}

fn to_general_rm<T: Element, const TRUNCATE: bool, const W: u32>(
    state: &mut State,
    op: &Op,
) -> Flow {
    match load(state, op, size_of::<T>()) {
        Some(b) => to_general::<T, TRUNCATE, W>(state, op, b),
        None => Flow::Stop,
    }
}

fn from_general<T: Element>(form: Form, width: u32) -> Option<Run> {
    Some(match (form, width) {
        (Form::RR, 32) => from_general_rr::<T, 32>,
        (Form::RR, 64) => from_general_rr::<T, 64>,
        (Form::RM, 32) => from_general_rm::<T, 32>,
        (Form::RM, 64) => from_general_rm::<T, 64>,
        _ => return None,
    })
}

#[inline(always)]
fn from_integer_to<T: Element>(state: &mut State, op: &Op, integer: u64) -> Flow {
    let mut control = Control::new(state);
    let result: T = control.take(from_integer(integer.cast_signed(), control.env));
    if control.finish(state).is_none() {
        return Flow::Stop;
    }
    let bits = 8 * size_of::<T>();
    let rest = xmm(state, op.dst) >> bits << bits;
    set_xmm(state, op.dst, rest | u128::from(result.widen()));
    Flow::Next
}

fn from_general_rr<T: Element, const W: u32>(state: &mut State, op: &Op) -> Flow {
    let integer = sign_extend::<W>(state.get::<W>(op.src));
    from_integer_to::<T>(state, op, integer)
}

fn from_general_rm<T: Element, const W: u32>(state: &mut State, op: &Op) -> Flow {
    match state.load::<W>(op.address(state)) {
        Some(integer) => from_integer_to::<T>(state, op, sign_extend::<W>(integer)),
        None => Flow::Stop,
    }
}
