//! Conversions between the formats and to and from integers, and rounding to integral values.

use super::super::round::round_to_integer;
use super::super::unpacked::Unpacked;
use super::super::{Class, Exceptions, Rounding};
use super::{Element, Env, Interchange, decode, finish, fraction_bits, infinity, quiet, quiet_bit};

/// The width of the signed integer of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntegerWidth {
    /// 32 bits.
    Bits32,
    /// 64 bits.
    Bits64,
}

/// Converts to another format.
pub(super) fn convert<A: Interchange, B: Interchange>(a: A, env: Env) -> (B, Exceptions) {
    let x = decode(a, env.denormals_are_zero);
    match x.class {
        Class::Infinity => (infinity(x.value.negative), Exceptions::NONE),
        Class::QuietNan | Class::SignalingNan => {
            // The top fraction bits stay at the top.
            let fraction = a.widen() << (64 - fraction_bits(A::FORMAT));
            let payload = fraction >> (64 - fraction_bits(B::FORMAT));
            let nan = infinity::<B>(x.value.negative).widen() | payload;
            let invalid = Exceptions::INVALID.when(x.class == Class::SignalingNan);
            (quiet(B::narrow(nan)), invalid)
        }
        _ => {
            let (result, exceptions) = finish(x.value, env);
            (
                result,
                exceptions | Exceptions::DENORMAL.when(x.class == Class::Denormal),
            )
        }
    }
}

/// `cvtss2sd`.
pub(crate) fn to_binary64(a: u32, env: Env) -> (u64, Exceptions) {
    convert(a, env)
}

/// `cvtsd2ss`.
pub(crate) fn to_binary32(a: u64, env: Env) -> (u32, Exceptions) {
    convert(a, env)
}

/// `cvtss2si` and its relatives, or with [`Rounding::Zero`] `cvttss2si` and its. The result is
/// sign-extended; an integer out of range is invalid and gives the most negative integer.
///
/// Of `env` only `denormals_are_zero` is used. Denormal operands raise no exception.
pub(crate) fn to_integer<T: Element>(
    a: T,
    width: IntegerWidth,
    rounding: Rounding,
    env: Env,
) -> (i64, Exceptions) {
    let indefinite = match width {
        IntegerWidth::Bits32 => i64::from(i32::MIN),
        IntegerWidth::Bits64 => i64::MIN,
    };

    let x = decode(a, env.denormals_are_zero);
    // What does not fit is invalid, and gives the integer indefinite (SDM volume 1).
    if x.class.is_nan() || x.class == Class::Infinity {
        return (indefinite, Exceptions::INVALID);
    }

    let Some(integer) = round_to_integer(x.value, rounding) else {
        return (indefinite, Exceptions::INVALID);
    };

    // The most negative integer has no positive counterpart.
    let limit = u128::from(indefinite.unsigned_abs()) - u128::from(!x.value.negative);
    if integer.magnitude > limit {
        return (indefinite, Exceptions::INVALID);
    }

    let magnitude = integer.magnitude as i64;
    let result = if x.value.negative {
        magnitude.wrapping_neg()
    } else {
        magnitude
    };
    (result, Exceptions::PRECISION.when(integer.inexact))
}

/// `cvtsi2ss`, `cvtsi2sd` and their relatives; a 32-bit integer is sign-extended by the caller.
pub(crate) fn from_integer<T: Element>(integer: i64, env: Env) -> (T, Exceptions) {
    finish(
        Unpacked::integer(integer < 0, u128::from(integer.unsigned_abs())),
        env,
    )
}

/// `roundss` and `roundsd` with a rounding direction, which the caller takes from the immediate
/// byte or, if its bit 2 is set, from MXCSR. With bit 3, `suppress_precision` is set.
///
/// Of `env` only `denormals_are_zero` is used. Denormal operands raise no exception.
pub(crate) fn round_to_integral<T: Element>(
    a: T,
    rounding: Rounding,
    suppress_precision: bool,
    env: Env,
) -> (T, Exceptions) {
    let x = decode(a, env.denormals_are_zero);
    match x.class {
        Class::Infinity => return (a, Exceptions::NONE),
        Class::QuietNan | Class::SignalingNan => {
            let signaling = a.widen() & quiet_bit(T::FORMAT) == 0;
            return (quiet(a), Exceptions::INVALID.when(signaling));
        }
        _ => {}
    }

    // From here on, all values are integers.
    if x.value.exponent >= fraction_bits(T::FORMAT) as i32 {
        return (a, Exceptions::NONE);
    }

    let Some(integer) = round_to_integer(x.value, rounding) else {
        return (a, Exceptions::NONE);
    };

    let (result, _) = finish(Unpacked::integer(x.value.negative, integer.magnitude), env);
    (
        result,
        Exceptions::PRECISION.when(integer.inexact && !suppress_precision),
    )
}
