//! SSE scalar operations on binary32 (`u32`) and binary64 (`u64`) bit patterns.
//!
//! Packed instructions apply them to each element and combine the flags; the caller builds `dpps`
//! and the horizontal instructions from [`add`] and [`multiply`].
//!
//! With unmasked exceptions, the caller combines the flags of all elements and raises #XM without
//! writing a result. It reports only IE, DE and ZE ([`Exceptions::before_result`]) if one of those
//! is unmasked, otherwise all flags.
//!
//! Source: Intel SDM volume 1, chapter 11 and table 4-7 (NaNs).

mod approximate;
mod arithmetic;
mod compare;
mod convert;
mod fused;
mod half;
mod native;

pub(crate) use approximate::{reciprocal, reciprocal_square_root};
pub(crate) use arithmetic::{add, divide, multiply, square_root, subtract};
pub(crate) use compare::{
    Predicate, compare_ordered, compare_unordered, maximum, minimum, satisfies,
};
pub(crate) use convert::{
    IntegerWidth, from_integer, round_to_integral, to_binary32, to_binary64, to_integer,
};
pub(crate) use fused::multiply_add;
pub(crate) use half::{from_binary16, to_binary16};

use super::round::{Format, round, round_unbounded};
use super::unpacked::Unpacked;
use super::{Class, Exceptions, Rounding};
use std::ops::{Add, Div, Mul, Neg, Sub};

/// The part of MXCSR that decides results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Env {
    /// RC.
    pub(crate) rounding: Rounding,
    /// FZ: tiny results become zero, if underflow is masked.
    pub(crate) flush_to_zero: bool,
    /// DAZ: denormal operands count as zero.
    pub(crate) denormals_are_zero: bool,
    /// OM. If clear, a result that overflows sets PE only if its significand was rounded.
    pub(crate) overflow_masked: bool,
    /// UM. If clear, a tiny result sets UE even when it is exact, and PE only if its significand
    /// was rounded before it was made denormal.
    pub(crate) underflow_masked: bool,
    /// PE is already set and PM is set, so it does not matter whether PE is among the returned
    /// flags. Saves the check whether a result is exact.
    pub(crate) precision_ignored: bool,
}

impl Env {
    /// Whether the host's arithmetic, which rounds to nearest, can be used instead of ours.
    const fn is_native(self) -> bool {
        matches!(self.rounding, Rounding::NearestEven)
            && !self.flush_to_zero
            && !self.denormals_are_zero
    }
}

/// A binary interchange format held in an unsigned integer: `u16` is binary16, `u32` binary32,
/// `u64` binary64.
pub(crate) trait Interchange: Copy + Eq {
    /// Precision and exponent range.
    const FORMAT: Format;
    /// The bits, zero-extended.
    fn widen(self) -> u64;
    /// The low bits of `bits`.
    fn narrow(bits: u64) -> Self;
}

macro_rules! interchange {
    ($($integer:ty: $format:ident;)*) => {$(
        impl Interchange for $integer {
            const FORMAT: Format = Format::$format;

            #[inline(always)]
            fn widen(self) -> u64 {
                self.into()
            }

            #[inline(always)]
            fn narrow(bits: u64) -> Self {
                bits as $integer
            }
        }
    )*};
}
interchange! {
    u16: BINARY16;
    u32: BINARY32;
    u64: BINARY64;
}

/// A format that instructions compute in.
pub(crate) trait Element: Interchange {
    /// The same format as a number of the host.
    type Float: Copy
        + PartialEq
        + Add<Output = Self::Float>
        + Sub<Output = Self::Float>
        + Mul<Output = Self::Float>
        + Div<Output = Self::Float>
        + Neg<Output = Self::Float>;
    /// The number of the host with these bits.
    fn float(self) -> Self::Float;
    /// The bits of a number of the host.
    fn from_float(float: Self::Float) -> Self;
    /// The host's square root.
    fn float_square_root(float: Self::Float) -> Self::Float;
    /// The host's `x × y + z`, rounded once.
    fn float_multiply_add(x: Self::Float, y: Self::Float, z: Self::Float) -> Self::Float;
}

impl Element for u32 {
    type Float = f32;

    fn float(self) -> f32 {
        f32::from_bits(self)
    }

    fn from_float(float: f32) -> Self {
        float.to_bits()
    }

    fn float_square_root(float: f32) -> f32 {
        float.sqrt()
    }

    fn float_multiply_add(x: f32, y: f32, z: f32) -> f32 {
        x.mul_add(y, z)
    }
}

impl Element for u64 {
    type Float = f64;

    fn float(self) -> f64 {
        f64::from_bits(self)
    }

    fn from_float(float: f64) -> Self {
        float.to_bits()
    }

    fn float_square_root(float: f64) -> f64 {
        float.sqrt()
    }

    fn float_multiply_add(x: f64, y: f64, z: f64) -> f64 {
        x.mul_add(y, z)
    }
}

const fn fraction_bits(format: Format) -> u32 {
    format.precision - 1
}

const fn sign_bit(format: Format) -> u64 {
    // The largest exponent has one bit less than the exponent field.
    let exponent_bits = 33 - (format.max_exponent as u32).leading_zeros();
    1 << (fraction_bits(format) + exponent_bits)
}

const fn infinity_bits(format: Format) -> u64 {
    sign_bit(format) - (1 << fraction_bits(format))
}

const fn quiet_bit(format: Format) -> u64 {
    1 << (fraction_bits(format) - 1)
}

/// Infinity.
fn infinity<T: Interchange>(negative: bool) -> T {
    T::narrow(infinity_bits(T::FORMAT) | if negative { sign_bit(T::FORMAT) } else { 0 })
}

/// The NaN of an invalid operation ("real indefinite"): quiet, negative, no payload.
fn default_nan<T: Interchange>() -> T {
    T::narrow(sign_bit(T::FORMAT) | infinity_bits(T::FORMAT) | quiet_bit(T::FORMAT))
}

fn quiet<T: Interchange>(nan: T) -> T {
    T::narrow(nan.widen() | quiet_bit(T::FORMAT))
}

/// A decoded operand. `value` is meaningless for NaNs; for infinities only its sign counts.
#[derive(Clone, Copy)]
struct Operand {
    class: Class,
    value: Unpacked,
}

/// Decodes an operand, with denormals as zeros if `denormals_are_zero`.
fn decode<T: Interchange>(bits: T, denormals_are_zero: bool) -> Operand {
    let bits = bits.widen();
    let format = T::FORMAT;

    let negative = bits & sign_bit(format) != 0;
    let fraction = bits & ((1 << fraction_bits(format)) - 1);
    let biased = (bits & infinity_bits(format)) >> fraction_bits(format);
    let top = u128::from(fraction) << (128 - format.precision);

    // The largest exponent is that of infinity and of NaNs.
    if bits & infinity_bits(format) == infinity_bits(format) {
        let class = if fraction == 0 {
            Class::Infinity
        } else if fraction & quiet_bit(format) != 0 {
            Class::QuietNan
        } else {
            Class::SignalingNan
        };
        return Operand {
            class,
            value: Unpacked::zero(negative),
        };
    }

    // DAZ: a zero of the same sign, without a denormal exception (SDM volume 1).
    if biased == 0 {
        if fraction == 0 || denormals_are_zero {
            return Operand {
                class: Class::Zero,
                value: Unpacked::zero(negative),
            };
        }

        // A denormal number has the smallest exponent, and no integer bit.
        let value = Unpacked::new(negative, format.min_exponent, top);
        return Operand {
            class: Class::Denormal,
            value,
        };
    }

    // The bias is the largest exponent.
    let exponent = biased as i32 - format.max_exponent;
    let value = Unpacked {
        negative,
        exponent,
        significand: 1 << 127 | top,
    };
    Operand {
        class: Class::Normal,
        value,
    }
}

/// Rounds a finite number to the format, with the responses of MXCSR.
fn finish<T: Interchange>(value: Unpacked, env: Env) -> (T, Exceptions) {
    let format = T::FORMAT;
    let rounded = round(value, format, env.rounding);

    let overflow = rounded.exceptions.contains(Exceptions::OVERFLOW);
    let mut exceptions = rounded.exceptions;

    // Unmasked, inexactness is that of a result whose exponent is not bounded.
    if (overflow && !env.overflow_masked) || (rounded.tiny && !env.underflow_masked) {
        let exception = if overflow {
            Exceptions::OVERFLOW
        } else {
            Exceptions::UNDERFLOW
        };
        let unbounded = round_unbounded(value, format.precision, env.rounding);
        exceptions = unbounded.exceptions | exception;
    }

    if rounded.infinite {
        return (infinity(rounded.negative), exceptions);
    }

    let sign = if rounded.negative {
        sign_bit(format)
    } else {
        0
    };

    // FTZ works only while underflow is masked (SDM volume 1).
    if rounded.tiny && env.underflow_masked && env.flush_to_zero {
        return (
            T::narrow(sign),
            Exceptions::UNDERFLOW | Exceptions::PRECISION,
        );
    }

    // Without the integer bit, which the format does not store.
    let fraction = (rounded.significand << 1) >> (65 - format.precision);

    let biased = if rounded.significand >> 63 == 1 {
        (rounded.exponent + format.max_exponent) as u64
    } else {
        0
    };

    (
        T::narrow(sign | biased << fraction_bits(format) | fraction),
        exceptions,
    )
}

/// The result if an operand is a NaN: the first source operand's, quieted, unless only the second
/// is a NaN. Invalid if either is signaling.
fn propagate_nan<T: Element>(a: (T, Class), b: (T, Class)) -> Option<(T, Exceptions)> {
    let nan = match (a.1.is_nan(), b.1.is_nan()) {
        (true, _) => a.0,
        (false, true) => b.0,
        (false, false) => return None,
    };
    let signaling = a.1 == Class::SignalingNan || b.1 == Class::SignalingNan;
    Some((quiet(nan), Exceptions::INVALID.when(signaling)))
}

/// DE if one of the operands is denormal.
fn denormal_flag(a: Class, b: Class) -> Exceptions {
    Exceptions::DENORMAL.when(a == Class::Denormal || b == Class::Denormal)
}
