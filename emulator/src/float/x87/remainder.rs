//! `fprem` and `fprem1`.

use super::super::unpacked::Unpacked;
use super::super::{Class, Exceptions};
use super::{Env, F80, INVALID, Outcome, Precision, denormal_flag, finish, propagate_nan};

/// The result of a remainder instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Remainder {
    /// The remainder, or a partial one that has to be divided again.
    pub(crate) value: F80,
    /// The low three bits of the quotient, which C0 (bit 2), C3 (bit 1) and C1 (bit 0) receive, or
    /// `None` if the remainder is partial: then C2 is set and the others are clear. Meaningless if
    /// the result is a NaN: then C1 and C2 are clear, and C0 and C3 do not change.
    pub(crate) quotient: Option<u8>,
    /// The exceptions it raised.
    pub(crate) exceptions: Exceptions,
}

impl Remainder {
    fn special(outcome: Outcome<F80>) -> Self {
        Self {
            value: outcome.value,
            quotient: Some(0),
            exceptions: outcome.exceptions,
        }
    }
}

/// `fprem`, or `fprem1` if `to_nearest`: the rest of `a` after subtracting a whole number of `b`s.
/// If the exponents differ by 64 or more, the CPU reduces the difference by only 32 to 63.
pub(crate) fn remainder(a: F80, b: F80, to_nearest: bool, env: Env) -> Remainder {
    let (x, y) = (a.operand(), b.operand());
    if let Some(outcome) = propagate_nan(x, y) {
        return Remainder::special(outcome);
    }

    let denormal = denormal_flag(x, y);
    match (x.class, y.class) {
        (Class::Infinity, _) | (_, Class::Zero) => return Remainder::special(INVALID),
        (Class::Zero, _) => return Remainder::special(Outcome::exact(a.canonical(), denormal)),
        (_, Class::Infinity) => {
            let outcome = finish(x.value, Precision::Extended, env);
            return Remainder::special(outcome.raise(denormal));
        }
        _ => {}
    }

    // A remainder is partial if the exponents differ by 64 or more; then it takes 32 to 63 off the
    // difference (SDM volume 2, FPREM).
    let distance = x.value.exponent - y.value.exponent;
    let partial = distance >= 64;
    // The exponent at which the division stops, relative to the divisor's.
    let stop = if partial {
        distance - (distance & 31 | 32)
    } else {
        0
    };

    // An extended operand uses the upper 64 bits only, so a shifted rest cannot overflow.
    let divisor = y.value.significand >> 64;
    let mut rest = x.value.significand >> 64;

    let mut quotient = 0_u128;
    let mut lowered = 0;

    if distance >= 0 {
        quotient = u128::from(rest >= divisor);
        rest -= quotient * divisor;
        for _ in stop..distance {
            rest <<= 1;
            let bit = u128::from(rest >= divisor);
            rest -= bit * divisor;
            quotient = quotient << 1 | bit;
            lowered += 1;
        }
    }

    let mut negative = x.value.negative;
    let exponent = x.value.exponent - lowered;
    if to_nearest && !partial && distance >= -1 {
        // If the dividend's exponent is one lower, the divisor counts double in units of `rest`.
        let (twice, unit) = if distance >= 0 {
            (rest << 1, divisor)
        } else {
            (rest, divisor << 1)
        };

        // A tie goes to the even quotient.
        let above = twice > divisor || (twice == divisor && quotient & 1 == 1);
        if above {
            rest = unit - rest;
            quotient += 1;
            negative = !negative;
        }
    }

    let value = Unpacked::new(negative, exponent + 64, rest);
    let outcome = finish(value, Precision::Extended, env);

    // The low three bits, for C0, C3 and C1. A partial remainder has no quotient yet.
    Remainder {
        value: outcome.value,
        quotient: (!partial).then_some(quotient as u8 & 7),
        exceptions: outcome.exceptions | denormal,
    }
}
