//! `frndint`, `fscale` and `fxtract`.

use super::super::round::round_to_integer;
use super::super::unpacked::Unpacked;
use super::super::{Class, Exceptions, Rounding};
use super::{
    Env, F80, INVALID, Outcome, Precision, denormal_flag, finish, propagate_nan, propagate_one,
};

/// With a larger exponent every number is outside the format.
const SCALE_LIMIT: u128 = 1 << 16;

/// `frndint`.
pub(crate) fn round_to_integral(a: F80, env: Env) -> Outcome<F80> {
    let x = a.operand();
    if let Some(outcome) = propagate_one(x) {
        return outcome;
    }
    if matches!(x.class, Class::Zero | Class::Infinity) || x.value.exponent >= 63 {
        return Outcome::exact(a, Exceptions::NONE);
    }
    let Some(integer) = round_to_integer(x.value, env.rounding) else {
        return Outcome::exact(a, Exceptions::NONE);
    };
    let integral = Unpacked::integer(x.value.negative, integer.magnitude);
    Outcome {
        value: finish(integral, Precision::Extended, env).value,
        exceptions: Exceptions::PRECISION.when(integer.inexact) | denormal_flag(x, x),
        rounded_up: integer.rounded_up,
    }
}

/// `fscale`: `a × 2^b`, with `b` rounded toward zero.
pub(crate) fn scale(a: F80, b: F80, env: Env) -> Outcome<F80> {
    let (x, y) = (a.operand(), b.operand());
    if let Some(outcome) = propagate_nan(x, y) {
        return outcome;
    }
    let denormal = denormal_flag(x, y);
    match (x.class, y.class, y.value.negative) {
        (Class::Infinity, Class::Infinity, true) | (Class::Zero, Class::Infinity, false) => {
            return INVALID;
        }
        (Class::Infinity | Class::Zero, _, _) => return Outcome::exact(a, denormal),
        (_, Class::Infinity, true) => return Outcome::exact(F80::zero(a.is_negative()), denormal),
        (_, Class::Infinity, false) => {
            return Outcome::exact(F80::infinity(a.is_negative()), denormal);
        }
        _ => {}
    }
    let count = match round_to_integer(y.value, Rounding::Zero) {
        Some(integer) => integer.magnitude.min(SCALE_LIMIT),
        None => SCALE_LIMIT,
    } as i32;
    let count = if y.value.negative { -count } else { count };
    finish(x.value.scale(count), Precision::Extended, env).raise(denormal)
}

/// `fxtract`: the significand, which replaces ST(0) at the new top, and the exponent below it.
pub(crate) fn extract(a: F80) -> Outcome<(F80, F80)> {
    let x = a.operand();
    if let Some(Outcome {
        value, exceptions, ..
    }) = propagate_one(x)
    {
        return Outcome::exact((value, value), exceptions);
    }
    match x.class {
        Class::Zero => Outcome::exact((a, F80::infinity(true)), Exceptions::DIVIDE_BY_ZERO),
        Class::Infinity => Outcome::exact((a, F80::infinity(false)), Exceptions::NONE),
        _ => {
            let exponent = x.value.exponent;
            let significand = F80 {
                sign_exponent: F80::ONE.sign_exponent,
                significand: (x.value.significand >> 64) as u64,
            };
            let exponent = super::from_integer(i64::from(exponent));
            let significand = significand.with_sign(a.is_negative());
            Outcome::exact((significand, exponent), denormal_flag(x, x))
        }
    }
}
