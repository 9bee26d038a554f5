//! `f2xm1`, `fyl2x` and `fyl2xp1`.
//!
//! Results are correctly rounded. The CPU's are within one unit in the last place of them, and the
//! same in some 9 of 10 cases. C1 follows our own rounding.

use super::super::elementary::{ONE, exp2_minus_1, log2, log2_plus_1};
use super::super::{Class, Exceptions};
use super::{
    Env, F80, INVALID, Outcome, denormal_flag, finish_inexact, propagate_nan, propagate_one,
};
use std::cmp::Ordering;

/// `f2xm1`: `2^a − 1`. Outside −1 to 1 the manual leaves the result undefined; the CPU gives `a`.
pub(crate) fn exponential(a: F80, env: Env) -> Outcome<F80> {
    let x = a.operand();
    if let Some(outcome) = propagate_one(x) {
        return outcome;
    }
    match x.class {
        Class::Zero => return Outcome::exact(a, Exceptions::NONE),
        Class::Infinity if a.is_negative() => {
            return Outcome::exact(F80::ONE.with_sign(true), Exceptions::NONE);
        }
        Class::Infinity => return Outcome::exact(a, Exceptions::NONE),
        _ => {}
    }
    if x.value.exponent >= 0 && x.value.abs() != ONE {
        return Outcome::exact(a, Exceptions::PRECISION);
    }
    finish_inexact(exp2_minus_1(x.value), env).raise(denormal_flag(x, x))
}

/// `fyl2x`: `y × log2 x`.
pub(crate) fn logarithm(x: F80, y: F80, env: Env) -> Outcome<F80> {
    let (a, b) = (x.operand(), y.operand());

    // Before any other exception: a NaN takes precedence.
    if let Some(outcome) = propagate_nan(a, b) {
        return outcome;
    }

    let denormal = denormal_flag(a, b);

    // The logarithm of 0 is minus infinity, with #Z; times 0 it is invalid (SDM volume 2, FYL2X).
    if a.class == Class::Zero {
        return match b.class {
            Class::Zero => INVALID,
            Class::Infinity => Outcome::exact(F80::infinity(!y.is_negative()), Exceptions::NONE),
            _ => Outcome::exact(F80::infinity(!y.is_negative()), Exceptions::DIVIDE_BY_ZERO),
        };
    }

    if x.is_negative() {
        return INVALID;
    }

    // The logarithm is positive above 1; with an infinite or zero factor only its sign counts.
    let sign_of_log = match a.class {
        Class::Infinity => Ordering::Greater,
        _ => a.value.compare(ONE),
    };

    if let Some(outcome) = extreme_product(a.class, sign_of_log, y, denormal) {
        return outcome;
    }

    finish_inexact(log2(a.value).multiply(b.value), env).raise(denormal)
}

/// `fyl2xp1`: `y × log2(x + 1)`. Beyond the range of the manual (1 − √½ on either side of zero) the
/// logarithm is computed all the same above −1.
pub(crate) fn logarithm_plus_1(x: F80, y: F80, env: Env) -> Outcome<F80> {
    let (a, b) = (x.operand(), y.operand());
    if let Some(outcome) = propagate_nan(a, b) {
        return outcome;
    }

    let denormal = denormal_flag(a, b);
    if a.class == Class::Infinity && x.is_negative() {
        return INVALID;
    }

    // log2(1) is 0, with the sign of x.
    if a.class == Class::Zero && b.class != Class::Infinity {
        return Outcome::exact(F80::zero(x.is_negative() != y.is_negative()), denormal);
    }

    let sign_of_log = match (a.class, x.is_negative()) {
        (Class::Zero, _) => Ordering::Equal,
        (_, true) => Ordering::Less,
        (_, false) => Ordering::Greater,
    };

    if let Some(outcome) = extreme_product(a.class, sign_of_log, y, denormal) {
        return outcome;
    }

    // The result is undefined for x <= -1 (SDM volume 2, FYL2XP1).
    if a.value.negative && a.value.exponent >= 0 {
        return Outcome::exact(x, Exceptions::PRECISION | denormal);
    }

    finish_inexact(log2_plus_1(a.value).multiply(b.value), env).raise(denormal)
}

/// The product of `y` and a logarithm with a known sign, if one of them is zero or infinite.
/// `class` is that of the logarithm's argument.
fn extreme_product(
    class: Class,
    sign_of_log: Ordering,
    y: F80,
    denormal: Exceptions,
) -> Option<Outcome<F80>> {
    let negative = y.is_negative() != (sign_of_log == Ordering::Less);
    match (class, sign_of_log, y.class()) {
        (Class::Infinity, _, Class::Zero) | (_, Ordering::Equal, Class::Infinity) => Some(INVALID),
        (Class::Infinity, _, _) | (_, _, Class::Infinity) => {
            Some(Outcome::exact(F80::infinity(negative), denormal))
        }
        (_, Ordering::Equal, _) | (_, _, Class::Zero) => {
            Some(Outcome::exact(F80::zero(negative), denormal))
        }
        _ => None,
    }
}
