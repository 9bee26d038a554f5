//! The x87 unit: 80-bit operands, precision control, the C1 condition bit.
//!
//! Operations work on register values; the caller handles register numbers, tags, TOP and stack
//! exceptions. A caller with IE, DE or ZE unmasked and set writes nothing. With OE or UE unmasked
//! and set it writes nothing if the destination is memory, otherwise the result, whose exponent
//! then is off by 24576, as the CPU leaves it.
//!
//! Source: Intel SDM volume 1, chapter 8 and table 4-7 (NaNs).

mod arithmetic;
mod convert;
mod exponential;
mod integral;
mod remainder;
mod trigonometric;

pub(crate) use arithmetic::{
    add, classify, compare_ordered, compare_unordered, divide, multiply, square_root, subtract,
};
pub(crate) use convert::{
    IntegerWidth, MemoryOperand, from_binary32, from_binary64, from_decimal, from_integer,
    to_binary32, to_binary64, to_decimal, to_integer,
};
pub(crate) use exponential::{exponential, logarithm, logarithm_plus_1};
pub(crate) use integral::{extract, round_to_integral, scale};
pub(crate) use remainder::remainder;
pub(crate) use trigonometric::{arc_tan, cos, sin, sin_cos, tan};

use super::round::{Format, Rounded, round, round_unbounded};
use super::unpacked::Unpacked;
use super::{Class, Exceptions, Rounding};

/// An 80-bit number: bit 15 is the sign, bits 0 to 14 the biased exponent, and the significand has
/// an explicit integer bit (63).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct F80 {
    /// Sign and biased exponent.
    pub(crate) sign_exponent: u16,
    /// Integer bit and fraction.
    pub(crate) significand: u64,
}

const EXPONENT_MASK: u16 = 0x7fff;
const EXPONENT_BIAS: i32 = 16383;
const INTEGER_BIT: u64 = 1 << 63;
const QUIET_BIT: u64 = 1 << 62;

/// How much the exponent of a result changes when its overflow or underflow is unmasked.
const BIAS_ADJUSTMENT: i32 = 24576;

impl F80 {
    /// The NaN of an invalid operation ("real indefinite"): quiet, negative, no payload.
    pub(crate) const INDEFINITE: Self = Self {
        sign_exponent: 0xffff,
        significand: INTEGER_BIT | QUIET_BIT,
    };
    /// One, as `fld1` loads it.
    pub(crate) const ONE: Self = Self {
        sign_exponent: 0x3fff,
        significand: INTEGER_BIT,
    };

    /// From the ten bytes in memory: the significand, then sign and exponent.
    pub(crate) fn from_bytes(bytes: [u8; 10]) -> Self {
        let [significand @ .., low, high] = bytes;
        Self {
            sign_exponent: u16::from_le_bytes([low, high]),
            significand: u64::from_le_bytes(significand),
        }
    }

    /// The ten bytes in memory.
    pub(crate) fn to_bytes(self) -> [u8; 10] {
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&self.significand.to_le_bytes());
        bytes[8..].copy_from_slice(&self.sign_exponent.to_le_bytes());
        bytes
    }

    const fn with_sign(self, negative: bool) -> Self {
        let sign = if negative { 1 << 15 } else { 0 };
        Self {
            sign_exponent: self.sign_exponent & EXPONENT_MASK | sign,
            ..self
        }
    }

    const fn zero(negative: bool) -> Self {
        Self {
            sign_exponent: 0,
            significand: 0,
        }
        .with_sign(negative)
    }

    const fn infinity(negative: bool) -> Self {
        Self {
            sign_exponent: EXPONENT_MASK,
            significand: INTEGER_BIT,
        }
        .with_sign(negative)
    }

    const fn is_negative(self) -> bool {
        self.sign_exponent >> 15 == 1
    }

    const fn quiet(self) -> Self {
        Self {
            significand: self.significand | QUIET_BIT,
            ..self
        }
    }

    const fn class(self) -> Class {
        let integer_bit = self.significand & INTEGER_BIT != 0;
        match self.sign_exponent & EXPONENT_MASK {
            0 if self.significand == 0 => Class::Zero,
            0 => Class::Denormal,
            _ if !integer_bit => Class::Unsupported,
            EXPONENT_MASK if self.significand == INTEGER_BIT => Class::Infinity,
            EXPONENT_MASK if self.significand & QUIET_BIT != 0 => Class::QuietNan,
            EXPONENT_MASK => Class::SignalingNan,
            _ => Class::Normal,
        }
    }

    /// The number if it is finite, otherwise a zero with the same sign.
    fn unpack(self) -> Unpacked {
        let negative = self.is_negative();
        if !matches!(self.class(), Class::Denormal | Class::Normal) {
            return Unpacked::zero(negative);
        }
        let biased = (self.sign_exponent & EXPONENT_MASK).max(1);
        let exponent = i32::from(biased) - EXPONENT_BIAS;
        Unpacked::new(negative, exponent, u128::from(self.significand) << 64)
    }

    /// The same value; a pseudo-denormal gets the exponent field of its normalized equal.
    const fn canonical(self) -> Self {
        if self.sign_exponent & EXPONENT_MASK == 0 && self.significand & INTEGER_BIT != 0 {
            return Self {
                sign_exponent: self.sign_exponent | 1,
                ..self
            };
        }
        self
    }

    /// The value as operations use it.
    fn operand(self) -> Operand {
        Operand {
            bits: self,
            class: self.class(),
            value: self.unpack(),
        }
    }

    /// A rounded number whose exponent is within the format.
    fn pack(rounded: Rounded) -> Self {
        if rounded.infinite {
            return Self::infinity(rounded.negative);
        }
        let biased = if rounded.significand & INTEGER_BIT != 0 {
            (rounded.exponent + EXPONENT_BIAS) as u16
        } else {
            0
        };
        Self {
            sign_exponent: biased,
            significand: rounded.significand,
        }
        .with_sign(rounded.negative)
    }
}

/// The PC field of the control word. It applies to addition, subtraction, multiplication, division
/// and square root; results keep the 80-bit exponent range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// 24 bits.
    Single,
    /// 53 bits.
    Double,
    /// 64 bits.
    Extended,
}

impl Precision {
    /// The precision of a two-bit PC field; the reserved value 1 means 64 bits, as on the CPU.
    pub(crate) const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Single,
            2 => Self::Double,
            _ => Self::Extended,
        }
    }

    const fn bits(self) -> u32 {
        match self {
            Self::Single => 24,
            Self::Double => 53,
            Self::Extended => 64,
        }
    }
}

/// The part of the control word that decides results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Env {
    /// RC.
    pub(crate) rounding: Rounding,
    /// PC.
    pub(crate) precision: Precision,
    /// OM. If clear, an overflowing register result has its exponent reduced by 24576.
    pub(crate) overflow_masked: bool,
    /// UM. If clear, a tiny register result has its exponent increased by 24576, and sets UE even
    /// when it is exact.
    pub(crate) underflow_masked: bool,
}

/// The result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome<T> {
    /// The result, as with IE, DE and ZE masked.
    pub(crate) value: T,
    /// The exceptions it raised.
    pub(crate) exceptions: Exceptions,
    /// C1: the magnitude was rounded up.
    pub(crate) rounded_up: bool,
}

impl<T> Outcome<T> {
    /// A result that was not rounded.
    const fn exact(value: T, exceptions: Exceptions) -> Self {
        Self {
            value,
            exceptions,
            rounded_up: false,
        }
    }

    fn raise(self, exceptions: Exceptions) -> Self {
        Self {
            exceptions: self.exceptions | exceptions,
            ..self
        }
    }
}

/// The result of an invalid operation.
const INVALID: Outcome<F80> = Outcome::exact(F80::INDEFINITE, Exceptions::INVALID);

/// A decoded operand. `value` is meaningless for NaNs; for infinities only its sign counts.
#[derive(Clone, Copy)]
struct Operand {
    bits: F80,
    class: Class,
    value: Unpacked,
}

/// Rounds a finite number for a register.
fn finish(value: Unpacked, precision: Precision, env: Env) -> Outcome<F80> {
    let format = Format {
        precision: precision.bits(),
        ..Format::EXTENDED
    };

    // The precision is that of the control word, and the range always that of the extended format.
    let rounded = round(value, format, env.rounding);
    let overflow = rounded.exceptions.contains(Exceptions::OVERFLOW);

    // Unmasked, the result in the register has an exponent that is off by 24576 (SDM volume 1,
    // numeric overflow and underflow).
    let (adjustment, exception) = if overflow && !env.overflow_masked {
        (-BIAS_ADJUSTMENT, Exceptions::OVERFLOW)
    } else if rounded.tiny && !env.underflow_masked {
        (BIAS_ADJUSTMENT, Exceptions::UNDERFLOW)
    } else {
        return Outcome {
            value: F80::pack(rounded),
            exceptions: rounded.exceptions,
            rounded_up: rounded.rounded_up,
        };
    };

    let mut rounded = round_unbounded(value.scale(adjustment), format.precision, env.rounding);
    // Only `fscale` gets so far out that the adjustment does not bring it back.
    if rounded.exponent > format.max_exponent {
        rounded = Rounded {
            infinite: true,
            rounded_up: true,
            ..rounded
        };
        rounded.exceptions |= Exceptions::PRECISION;
    } else if rounded.exponent < format.min_exponent {
        rounded = Rounded {
            significand: 0,
            rounded_up: false,
            ..rounded
        };
        rounded.exceptions |= Exceptions::PRECISION;
    }
    Outcome {
        value: F80::pack(rounded),
        exceptions: rounded.exceptions | exception,
        rounded_up: rounded.rounded_up,
    }
}

/// Rounds the value of a transcendental function. The CPU always reports it as inexact.
fn finish_inexact(value: Unpacked, env: Env) -> Outcome<F80> {
    let outcome = finish(value, Precision::Extended, env);
    let underflow = Exceptions::UNDERFLOW.when(outcome.value.class() == Class::Denormal);
    outcome.raise(Exceptions::PRECISION | underflow)
}

/// The result of a one-operand operation on a NaN or an unsupported pattern.
fn propagate_one(a: Operand) -> Option<Outcome<F80>> {
    match a.class {
        Class::Unsupported => Some(INVALID),
        Class::SignalingNan => Some(Outcome::exact(a.bits.quiet(), Exceptions::INVALID)),
        Class::QuietNan => Some(Outcome::exact(a.bits, Exceptions::NONE)),
        _ => None,
    }
}

/// The result of a two-operand operation if an operand is a NaN or unsupported. Of two NaNs a quiet
/// one wins over a signaling one, then the larger significand, then the positive one.
fn propagate_nan(a: Operand, b: Operand) -> Option<Outcome<F80>> {
    if a.class == Class::Unsupported || b.class == Class::Unsupported {
        return Some(INVALID);
    }

    // The quiet one of two NaNs, or the one with the larger significand (SDM volume 1, table 4-7).
    let nan = match (a.class, b.class) {
        (Class::QuietNan, Class::SignalingNan) => a.bits,
        (Class::SignalingNan, Class::QuietNan) => b.bits,
        (x, y) if x.is_nan() && y.is_nan() => {
            let key = |nan: F80| (nan.significand, !nan.is_negative());
            if key(a.bits) >= key(b.bits) {
                a.bits
            } else {
                b.bits
            }
        }
        (x, _) if x.is_nan() => a.bits,
        (_, y) if y.is_nan() => b.bits,
        _ => return None,
    };

    let signaling = a.class == Class::SignalingNan || b.class == Class::SignalingNan;
    Some(Outcome::exact(
        nan.quiet(),
        Exceptions::INVALID.when(signaling),
    ))
}

/// DE if one of the operands is denormal.
fn denormal_flag(a: Operand, b: Operand) -> Exceptions {
    Exceptions::DENORMAL.when(a.class == Class::Denormal || b.class == Class::Denormal)
}
