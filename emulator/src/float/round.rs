//! Rounding an exact number to the precision and exponent range of a format.

use super::unpacked::{Unpacked, shift_right_sticky};
use super::{Exceptions, Rounding};

/// The precision and exponent range of a binary format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// Significand bits, including the leading one: at most 64.
    pub(super) precision: u32,
    /// The exponent of the smallest normalized number.
    pub(super) min_exponent: i32,
    /// The exponent of the largest number.
    pub(super) max_exponent: i32,
}

impl Format {
    pub(super) const BINARY16: Self = Self {
        precision: 11,
        min_exponent: -14,
        max_exponent: 15,
    };
    pub(super) const BINARY32: Self = Self {
        precision: 24,
        min_exponent: -126,
        max_exponent: 127,
    };
    pub(super) const BINARY64: Self = Self {
        precision: 53,
        min_exponent: -1022,
        max_exponent: 1023,
    };
    pub(super) const EXTENDED: Self = Self {
        precision: 64,
        min_exponent: -16382,
        max_exponent: 16383,
    };
}

/// A number that fits a format: `significand × 2^(exponent − 63)`, or an infinity.
///
/// The top significand bit is set, except for zero and for denormal numbers, whose exponent is the
/// format's smallest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rounded {
    pub(super) negative: bool,
    pub(super) exponent: i32,
    pub(super) significand: u64,
    pub(super) infinite: bool,
    /// The magnitude is smaller than the smallest normalized one after rounding to the precision
    /// of the format as if exponents had no limit.
    pub(super) tiny: bool,
    /// The magnitude was rounded up.
    pub(super) rounded_up: bool,
    /// OE, UE and PE as with masked exceptions.
    pub(super) exceptions: Exceptions,
}

/// A significand cut to its top bits.
struct CutSignificand {
    kept: u128,
    inexact: bool,
    rounded_up: bool,
}

/// The top `bits` (at most 127) of `significand`, rounded.
fn cut(significand: u128, bits: u32, negative: bool, rounding: Rounding) -> CutSignificand {
    let kept = if bits == 0 {
        0
    } else {
        significand >> (128 - bits)
    };
    let rest = significand << bits;
    const HALF: u128 = 1 << 127;
    let rounded_up = match rounding {
        Rounding::NearestEven => rest > HALF || (rest == HALF && kept & 1 == 1),
        Rounding::Down => negative && rest != 0,
        Rounding::Up => !negative && rest != 0,
        Rounding::Zero => false,
    };
    CutSignificand {
        kept: kept + u128::from(rounded_up),
        inexact: rest != 0,
        rounded_up,
    }
}

/// Rounds to `precision` bits with no limit to the exponent.
pub(super) fn round_unbounded(value: Unpacked, precision: u32, rounding: Rounding) -> Rounded {
    let cut = cut(value.significand, precision, value.negative, rounding);
    let carry = cut.kept >> precision != 0;
    let kept = if carry { cut.kept >> 1 } else { cut.kept };
    Rounded {
        negative: value.negative,
        exponent: value.exponent + i32::from(carry),
        significand: (kept << (64 - precision)) as u64,
        infinite: false,
        tiny: false,
        rounded_up: cut.rounded_up,
        exceptions: Exceptions::PRECISION.when(cut.inexact),
    }
}

/// Rounds to a format, with the responses to masked overflow and underflow.
pub(super) fn round(value: Unpacked, format: Format, rounding: Rounding) -> Rounded {
    let unbounded = round_unbounded(value, format.precision, rounding);
    if value.is_zero() {
        return Rounded {
            exponent: format.min_exponent,
            ..unbounded
        };
    }

    if unbounded.exponent > format.max_exponent {
        return overflowed(value.negative, format, rounding);
    }

    if value.exponent >= format.min_exponent {
        return unbounded;
    }

    // x86 detects tininess after rounding (SDM volume 1): a value that rounds up to the
    // smallest normal number is not tiny.
    let tiny = unbounded.exponent < format.min_exponent;

    // Below the smallest exponent, fewer bits are left.
    let shift = format.min_exponent.abs_diff(value.exponent);
    let significand = shift_right_sticky(value.significand, shift);
    let denormal = cut(significand, format.precision, value.negative, rounding);

    let underflow = Exceptions::UNDERFLOW.when(tiny && denormal.inexact);
    Rounded {
        exponent: format.min_exponent,
        significand: (denormal.kept << (64 - format.precision)) as u64,
        tiny,
        rounded_up: denormal.rounded_up,
        exceptions: underflow | Exceptions::PRECISION.when(denormal.inexact),
        ..unbounded
    }
}

/// The response to a masked overflow: infinity, or the largest number if the rounding direction
/// leads back to it.
fn overflowed(negative: bool, format: Format, rounding: Rounding) -> Rounded {
    let infinite = match rounding {
        Rounding::NearestEven => true,
        Rounding::Down => negative,
        Rounding::Up => !negative,
        Rounding::Zero => false,
    };
    Rounded {
        negative,
        exponent: format.max_exponent,
        significand: u64::MAX << (64 - format.precision),
        infinite,
        tiny: false,
        rounded_up: infinite,
        exceptions: Exceptions::OVERFLOW | Exceptions::PRECISION,
    }
}

/// A number rounded to an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Integer {
    pub(super) magnitude: u128,
    pub(super) inexact: bool,
    /// The magnitude was rounded up.
    pub(super) rounded_up: bool,
}

/// Rounds to an integer, or `None` if the magnitude is 2^127 or more.
pub(super) fn round_to_integer(value: Unpacked, rounding: Rounding) -> Option<Integer> {
    if value.is_zero() {
        return Some(Integer {
            magnitude: 0,
            inexact: false,
            rounded_up: false,
        });
    }
    let bits = value.exponent + 1;
    if bits > 127 {
        return None;
    }
    let significand = shift_right_sticky(value.significand, (-bits).max(0) as u32);
    let cut = cut(significand, bits.max(0) as u32, value.negative, rounding);
    Some(Integer {
        magnitude: cut.kept,
        inexact: cut.inexact,
        rounded_up: cut.rounded_up,
    })
}
