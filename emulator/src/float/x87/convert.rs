//! Loads and stores of other formats: binary32, binary64, integers, packed decimal.

use super::super::round::{Format, round, round_to_integer};
use super::super::unpacked::Unpacked;
use super::super::{Class, Exceptions, Relation, Rounding};
use super::{EXPONENT_MASK, Env, F80, INTEGER_BIT, Operand, Outcome, QUIET_BIT};

/// The width of a signed integer in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntegerWidth {
    /// 16 bits.
    Bits16,
    /// 32 bits.
    Bits32,
    /// 64 bits.
    Bits64,
}

/// `fild`: every integer is exact.
pub(crate) fn from_integer(integer: i64) -> F80 {
    if integer == 0 {
        return F80::zero(false);
    }
    let magnitude = integer.unsigned_abs();
    let shift = magnitude.leading_zeros();
    F80 {
        sign_exponent: 0x403e - shift as u16,
        significand: magnitude << shift,
    }
    .with_sign(integer < 0)
}

/// `fld` of a binary32.
pub(crate) fn from_binary32(bits: u32) -> (F80, Exceptions) {
    MemoryOperand::binary32(bits).load()
}

/// `fld` of a binary64.
pub(crate) fn from_binary64(bits: u64) -> (F80, Exceptions) {
    MemoryOperand::binary64(bits).load()
}

/// A binary32 or binary64 operand in memory, widened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryOperand {
    /// The value to compute with; a signaling NaN is still one.
    pub(crate) value: F80,
    /// It is denormal in memory, though its value here is not.
    pub(crate) denormal: bool,
}

impl MemoryOperand {
    /// Widens a binary32.
    pub(crate) fn binary32(bits: u32) -> Self {
        widen(u64::from(bits), Format::BINARY32, 31)
    }

    /// Widens a binary64.
    pub(crate) fn binary64(bits: u64) -> Self {
        widen(bits, Format::BINARY64, 63)
    }

    fn load(self) -> (F80, Exceptions) {
        let invalid = Exceptions::INVALID.when(self.value.class() == Class::SignalingNan);
        let value = if self.value.class().is_nan() {
            self.value.quiet()
        } else {
            self.value
        };
        (value, invalid | Exceptions::DENORMAL.when(self.denormal))
    }

    /// The outcome of an operation on `value`, with DE if the operand was denormal, unless a NaN or
    /// an exception of higher priority prevents it.
    pub(crate) fn arithmetic(self, outcome: Outcome<F80>) -> Outcome<F80> {
        let kept_away = outcome.value.class().is_nan()
            || outcome.exceptions.contains(Exceptions::DIVIDE_BY_ZERO);
        outcome.raise(Exceptions::DENORMAL.when(self.denormal && !kept_away))
    }

    /// The same for a comparison with `value`.
    pub(crate) fn comparison(self, result: (Relation, Exceptions)) -> (Relation, Exceptions) {
        let due = self.denormal && result.0 != Relation::Unordered;
        (result.0, result.1 | Exceptions::DENORMAL.when(due))
    }
}

fn widen(bits: u64, format: Format, sign: u32) -> MemoryOperand {
    let fraction_bits = format.precision - 1;
    let negative = bits >> sign & 1 == 1;
    let biased = bits << (63 - sign) << 1 >> (64 - (sign - fraction_bits));
    let fraction = bits << (64 - fraction_bits);

    let largest = (1 << (sign - fraction_bits)) - 1;

    // Infinity or a NaN, which stays signaling: the caller makes it quiet.
    if biased == largest {
        let significand = INTEGER_BIT | fraction >> 1;
        let value = F80 {
            sign_exponent: EXPONENT_MASK,
            significand,
        }
        .with_sign(negative);
        return MemoryOperand {
            value,
            denormal: false,
        };
    }

    // With an exponent field of 0, it is the smallest exponent, and the integer bit is 0: a zero or
    // a denormal.
    let (exponent, significand) = if biased != 0 {
        (
            biased as i32 - format.max_exponent,
            u128::from(INTEGER_BIT | fraction >> 1) << 64,
        )
    } else {
        (format.min_exponent, u128::from(fraction) << 63)
    };

    // Nothing is rounded: each value of a shorter format is one of the extended format.
    let value = Unpacked::new(negative, exponent, significand);
    MemoryOperand {
        value: F80::pack(round(value, Format::EXTENDED, Rounding::Zero)),
        denormal: biased == 0 && fraction != 0,
    }
}

/// `fst` to a binary32. With an unmasked exception among the returned ones, nothing is stored.
pub(crate) fn to_binary32(a: F80, env: Env) -> Outcome<u32> {
    let Outcome {
        value,
        exceptions,
        rounded_up,
    } = narrow(a, Format::BINARY32, 31, env);
    Outcome {
        value: value as u32,
        exceptions,
        rounded_up,
    }
}

/// `fst` to a binary64. With an unmasked exception among the returned ones, nothing is stored.
pub(crate) fn to_binary64(a: F80, env: Env) -> Outcome<u64> {
    narrow(a, Format::BINARY64, 63, env)
}

fn narrow(a: F80, format: Format, sign: u32, env: Env) -> Outcome<u64> {
    let fraction_bits = format.precision - 1;
    let sign_bit = u64::from(a.is_negative()) << sign;
    let infinity = (1 << sign) - (1 << fraction_bits);

    let Operand { class, value, .. } = a.operand();
    match class {
        Class::Infinity => return Outcome::exact(sign_bit | infinity, Exceptions::NONE),
        Class::QuietNan | Class::SignalingNan => {
            // The upper bits of the payload stay, and the NaN becomes quiet.
            let payload = (a.significand | QUIET_BIT) << 1 >> (64 - fraction_bits);
            let invalid = Exceptions::INVALID.when(class == Class::SignalingNan);
            return Outcome::exact(sign_bit | infinity | payload, invalid);
        }
        // Encodings that only the 8087 and the 80287 knew (SDM volume 1).
        Class::Unsupported => {
            let quiet_nan = 1 << sign | infinity | 1 << (fraction_bits - 1);
            return Outcome::exact(quiet_nan, Exceptions::INVALID);
        }
        _ => {}
    }

    let rounded = round(value, format, env.rounding);

    // Unmasked, the caller stores nothing: only the exception counts.
    if rounded.exceptions.contains(Exceptions::OVERFLOW) && !env.overflow_masked {
        return Outcome::exact(sign_bit | infinity, Exceptions::OVERFLOW);
    }
    if rounded.tiny && !env.underflow_masked {
        return Outcome::exact(sign_bit, Exceptions::UNDERFLOW);
    }

    let magnitude = if rounded.infinite {
        infinity
    } else {
        let fraction = rounded.significand << 1 >> (65 - format.precision);
        let normalized = rounded.significand & INTEGER_BIT != 0;
        let biased = if normalized {
            (rounded.exponent + format.max_exponent) as u64
        } else {
            0
        };
        biased << fraction_bits | fraction
    };

    Outcome {
        value: sign_bit | magnitude,
        exceptions: rounded.exceptions,
        rounded_up: rounded.rounded_up,
    }
}

/// `fist`, or with [`Rounding::Zero`] `fisttp`. The result is sign-extended; an integer out of range
/// is invalid and gives the most negative integer.
pub(crate) fn to_integer(a: F80, width: IntegerWidth, rounding: Rounding) -> Outcome<i64> {
    let indefinite = match width {
        IntegerWidth::Bits16 => i64::from(i16::MIN),
        IntegerWidth::Bits32 => i64::from(i32::MIN),
        IntegerWidth::Bits64 => i64::MIN,
    };

    // The most negative integer has no positive counterpart.
    let limit = indefinite.unsigned_abs() - u64::from(!a.is_negative());

    match bounded_integer(a, limit, rounding) {
        Some(Outcome {
            value,
            exceptions,
            rounded_up,
        }) => {
            let value = if a.is_negative() {
                value.wrapping_neg()
            } else {
                value
            } as i64;
            Outcome {
                value,
                exceptions,
                rounded_up,
            }
        }
        None => Outcome::exact(indefinite, Exceptions::INVALID),
    }
}

/// The magnitude of `a` rounded to an integer, unless that is above `limit`.
fn bounded_integer(a: F80, limit: u64, rounding: Rounding) -> Option<Outcome<u64>> {
    let Operand { class, value, .. } = a.operand();
    if !matches!(class, Class::Zero | Class::Denormal | Class::Normal) {
        return None;
    }
    let integer = round_to_integer(value, rounding)?;
    let magnitude = u64::try_from(integer.magnitude).ok()?;
    (magnitude <= limit).then_some(Outcome {
        value: magnitude,
        exceptions: Exceptions::PRECISION.when(integer.inexact),
        rounded_up: integer.rounded_up,
    })
}

/// Number of digits of a packed decimal integer.
const DECIMAL_DIGITS: u32 = 18;

/// `fbld`: 18 digits, two to a byte, least significant first; bit 7 of the last byte is the sign.
/// A digit above 9 counts with its value, as on the CPU.
pub(crate) fn from_decimal(bytes: [u8; 10]) -> F80 {
    let [digits @ .., sign] = bytes;
    let magnitude = digits.iter().rev().fold(0_u64, |value, byte| {
        value * 100 + u64::from(byte >> 4) * 10 + u64::from(byte & 15)
    });
    from_integer(magnitude as i64).with_sign(sign & 0x80 != 0)
}

/// `fbstp`. An integer of more than 18 digits is invalid.
pub(crate) fn to_decimal(a: F80, env: Env) -> Outcome<[u8; 10]> {
    const INDEFINITE: [u8; 10] = [0, 0, 0, 0, 0, 0, 0, 0xc0, 0xff, 0xff];
    let limit = 10_u64.pow(DECIMAL_DIGITS) - 1;
    let Some(integer) = bounded_integer(a, limit, env.rounding) else {
        return Outcome::exact(INDEFINITE, Exceptions::INVALID);
    };
    let mut bytes = [0; 10];
    let [digits @ .., sign] = &mut bytes;
    let mut rest = integer.value;
    for byte in digits {
        *byte = (rest / 10 % 10) as u8 * 16 + (rest % 10) as u8;
        rest /= 100;
    }
    *sign = if a.is_negative() { 0x80 } else { 0 };
    Outcome {
        value: bytes,
        exceptions: integer.exceptions,
        rounded_up: integer.rounded_up,
    }
}
