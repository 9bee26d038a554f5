//! `fsin`, `fcos`, `fsincos`, `fptan` and `fpatan`.
//!
//! Results are correctly rounded, except for tiny arguments, where they follow the CPU's shortcuts.
//! The CPU's results are within one unit in the last place of them, and equal in some 19 of 20
//! cases. C1 follows our own rounding.
//!
//! Arguments are reduced with the CPU's 66 bits of π (Intel SDM volume 1), so that
//! results near multiples of π/2 agree with the CPU and not with the exact function.

use super::super::elementary::{ONE, PI, arc_tangent, cosine, sine, sum};
use super::super::unpacked::Unpacked;
use super::super::{Class, Exceptions};
use super::{
    Env, F80, INVALID, Operand, Outcome, denormal_flag, finish_inexact, propagate_nan,
    propagate_one,
};

/// π/2 in units of 2^-65: the 66 bits the CPU uses.
const HALF_PI: u128 = 0x3_243f_6a88_85a3_08d3;

/// Arguments with this exponent or a larger one are refused.
const ARGUMENT_LIMIT: i32 = 63;

/// Below this exponent the CPU takes the sine and the tangent of a number to be the number itself,
/// and its cosine to be 1, in every rounding direction.
const TINY_ARGUMENT: i32 = -68;

/// Below this exponent the CPU takes the tangent of a number to be just less than the number.
const SMALL_TANGENT: i32 = -33;

/// Where the exponents of `y` and `x` differ by more than this, the CPU takes the angle to be
/// `y ÷ x`.
const SMALL_RATIO: i32 = -40;

/// The rest of a positive number after subtracting the nearest multiple of π/2, and the multiple
/// modulo 4.
fn reduce(x: Unpacked) -> (Unpacked, u8) {
    if x.exponent < -1 {
        return (x, 0);
    }
    let mut rest = x.significand >> 64;
    let mut quadrant = 0_u8;
    // The significand is in units of 2^(exponent − 63).
    for _ in 0..x.exponent + 2 {
        rest <<= 1;
        quadrant = quadrant << 1 & 3;
        if rest >= HALF_PI {
            rest -= HALF_PI;
            quadrant |= 1;
        }
    }
    let above = rest << 1 > HALF_PI;
    let rest = if above { HALF_PI - rest } else { rest };
    (
        Unpacked::new(above, 127 - 65, rest),
        (quadrant + u8::from(above)) & 3,
    )
}

/// Sine and cosine of a finite number that is not zero.
fn sine_and_cosine(x: Unpacked) -> (Unpacked, Unpacked) {
    if x.exponent < TINY_ARGUMENT {
        return (x, ONE);
    }
    let (rest, quadrant) = reduce(x.abs());
    let (s, c) = (sine(rest), cosine(rest));
    let (s, c) = match quadrant {
        0 => (s, c),
        1 => (c, s.negate()),
        2 => (s.negate(), c.negate()),
        _ => (c.negate(), s),
    };
    (if x.negative { s.negate() } else { s }, c)
}

/// The result for operands that need no computation. `at_zero` is the function's value at zero.
fn special(x: Operand, at_zero: F80) -> Option<Outcome<F80>> {
    match x.class {
        Class::Infinity => Some(INVALID),
        Class::Zero => Some(Outcome::exact(at_zero, Exceptions::NONE)),
        _ => propagate_one(x),
    }
}

fn is_out_of_range(x: Operand) -> bool {
    x.class == Class::Normal && x.value.exponent >= ARGUMENT_LIMIT
}

/// `fsin`. `None` if the argument is 2^63 or more: then C2 is set and nothing else happens.
pub(crate) fn sin(a: F80, env: Env) -> Option<Outcome<F80>> {
    let x = a.operand();
    if is_out_of_range(x) {
        return None;
    }
    Some(special(x, a).unwrap_or_else(|| {
        finish_inexact(sine_and_cosine(x.value).0, env).raise(denormal_flag(x, x))
    }))
}

/// `fcos`. `None` as for [`sin`].
pub(crate) fn cos(a: F80, env: Env) -> Option<Outcome<F80>> {
    let x = a.operand();
    if is_out_of_range(x) {
        return None;
    }
    Some(special(x, F80::ONE).unwrap_or_else(|| {
        finish_inexact(sine_and_cosine(x.value).1, env).raise(denormal_flag(x, x))
    }))
}

/// `fsincos`: the sine, which replaces ST(0), and the cosine, which is pushed. `None` as for
/// [`sin`].
pub(crate) fn sin_cos(a: F80, env: Env) -> Option<Outcome<(F80, F80)>> {
    let (sine, cosine) = (sin(a, env)?, cos(a, env)?);
    Some(Outcome {
        value: (sine.value, cosine.value),
        exceptions: sine.exceptions | cosine.exceptions,
        rounded_up: cosine.rounded_up,
    })
}

/// `fptan`: the tangent, which replaces ST(0), and the number pushed: 1, or the same NaN. `None` as
/// for [`sin`].
pub(crate) fn tan(a: F80, env: Env) -> Option<Outcome<(F80, F80)>> {
    let x = a.operand();
    if is_out_of_range(x) {
        return None;
    }

    if let Some(Outcome {
        value, exceptions, ..
    }) = special(x, a)
    {
        // `fptan` pushes 1 after the result, and a NaN twice.
        let pushed = if value.class().is_nan() {
            value
        } else {
            F80::ONE
        };
        return Some(Outcome::exact((value, pushed), exceptions));
    }

    // The short ways are the processor's: see the constants.
    let value = if x.value.exponent < TINY_ARGUMENT {
        x.value
    } else if x.value.exponent < SMALL_TANGENT {
        Unpacked::new(x.value.negative, x.value.exponent, x.value.significand - 1)
    } else {
        let (sine, cosine) = sine_and_cosine(x.value);
        sine.divide(cosine)
    };

    let tangent = finish_inexact(value, env).raise(denormal_flag(x, x));
    Some(Outcome {
        value: (tangent.value, F80::ONE),
        exceptions: tangent.exceptions,
        rounded_up: tangent.rounded_up,
    })
}

/// `fpatan`: the angle of the point `(x, y)`, from −π to π.
pub(crate) fn arc_tan(y: F80, x: F80, env: Env) -> Outcome<F80> {
    let (a, b) = (y.operand(), x.operand());
    if let Some(outcome) = propagate_nan(a, b) {
        return outcome;
    }

    let denormal = denormal_flag(a, b);
    let quarter = |quarters: u128| PI.multiply(Unpacked::integer(false, quarters)).scale(-2);

    let left = x.is_negative();

    // The angle of the point (x, y), so that x decides the quadrant and y the sign (SDM volume 2,
    // FPATAN).
    let angle = match (a.class, b.class) {
        (Class::Zero, _) | (Class::Denormal | Class::Normal, Class::Infinity) if !left => {
            return Outcome::exact(F80::zero(y.is_negative()), denormal);
        }
        (Class::Zero, _) | (Class::Denormal | Class::Normal, Class::Infinity) => quarter(4),
        (Class::Infinity, Class::Infinity) => quarter(if left { 3 } else { 1 }),
        (Class::Infinity, _) | (_, Class::Zero) => quarter(2),
        _ if !left && a.value.exponent - b.value.exponent < SMALL_RATIO => a.value.divide(b.value),
        _ => {
            let angle = arc_tangent(a.value.abs(), b.value.abs());
            if left { sum(PI, angle.negate()) } else { angle }
        }
    };

    let signed = Unpacked {
        negative: y.is_negative(),
        ..angle
    };
    finish_inexact(signed, env).raise(denormal)
}
