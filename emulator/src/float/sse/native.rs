//! The host's arithmetic, where it gives the emulated result: rounding to nearest, with ordinary
//! operands and results, so that only the precision exception is possible.
//!
//! Each function returns `None` where the host's result cannot be used. That includes results at
//! the edge of the normalized range, which can be tiny before the last rounding. Whether a result
//! is exact is decided by the error term of a sum, and otherwise by the odd parts of the
//! significands; this is skipped if `precision_ignored`.

use super::super::Exceptions;
use super::{Element, fraction_bits, infinity_bits, sign_bit};

/// A finite number well inside the normalized range.
#[inline]
fn is_ordinary<T: Element>(bits: T) -> bool {
    let exponent = bits.widen() & infinity_bits(T::FORMAT);
    exponent > 1 << fraction_bits(T::FORMAT) && exponent != infinity_bits(T::FORMAT)
}

#[inline]
fn is_ordinary_or_zero<T: Element>(bits: T) -> bool {
    is_ordinary(bits) || bits.widen() & !sign_bit(T::FORMAT) == 0
}

/// The significand of a normalized number, as an integer.
#[inline]
fn significand<T: Element>(bits: T) -> u128 {
    let leading = 1 << fraction_bits(T::FORMAT);
    u128::from(bits.widen() & (leading - 1) | leading)
}

/// A number without its trailing zero bits.
#[inline]
fn odd_part(value: u128) -> u128 {
    value >> (value.trailing_zeros() & 127)
}

/// The sum of `a` and `b`, or their difference.
#[inline]
pub(super) fn add<T: Element>(
    a: T,
    b: T,
    subtract: bool,
    precision_ignored: bool,
) -> Option<(T, Exceptions)> {
    if !(is_ordinary_or_zero(a) && is_ordinary_or_zero(b)) {
        return None;
    }

    let x = a.float();
    let y = if subtract { -b.float() } else { b.float() };
    let sum = x + y;
    let result = T::from_float(sum);

    // Overflow, underflow and their flags take the long way.
    if !is_ordinary_or_zero(result) {
        return None;
    }

    if precision_ignored {
        return Some((result, Exceptions::NONE));
    }

    // Knuth's error term. It can overflow only to a NaN.
    let y_part = sum - x;
    let error = (x - (sum - y_part)) + (y - y_part);

    let error_bits = T::from_float(error).widen() & !sign_bit(T::FORMAT);
    if error_bits >= infinity_bits(T::FORMAT) {
        return None;
    }

    Some((result, Exceptions::PRECISION.when(error_bits != 0)))
}

/// The product.
#[inline]
pub(super) fn multiply<T: Element>(a: T, b: T, precision_ignored: bool) -> Option<(T, Exceptions)> {
    let result = T::from_float(a.float() * b.float());
    if !(is_ordinary(a) && is_ordinary(b) && is_ordinary(result)) {
        return None;
    }
    let exact =
        precision_ignored || odd_part(significand(a) * significand(b)) >> T::FORMAT.precision == 0;
    Some((result, Exceptions::PRECISION.when(!exact)))
}

/// The product plus or minus the addend, rounded once. Whether it is exact is not decided.
#[inline]
pub(super) fn multiply_add<T: Element>(
    x: T,
    y: T,
    z: T,
    negate_product: bool,
    negate_addend: bool,
) -> Option<T> {
    if !(is_ordinary(x) && is_ordinary(y) && is_ordinary_or_zero(z)) {
        return None;
    }
    let x = if negate_product {
        -x.float()
    } else {
        x.float()
    };
    let z = if negate_addend { -z.float() } else { z.float() };
    let result = T::from_float(T::float_multiply_add(x, y.float(), z));
    is_ordinary(result).then_some(result)
}

/// The quotient.
#[inline]
pub(super) fn divide<T: Element>(a: T, b: T, precision_ignored: bool) -> Option<(T, Exceptions)> {
    let result = T::from_float(a.float() / b.float());
    if !(is_ordinary(a) && is_ordinary(b) && is_ordinary(result)) {
        return None;
    }
    // Quotient times divisor is within a factor of two of the dividend, so equal odd parts mean
    // equal numbers.
    let exact = precision_ignored
        || odd_part(significand(result) * significand(b)) == odd_part(significand(a));
    Some((result, Exceptions::PRECISION.when(!exact)))
}

/// The square root.
#[inline]
pub(super) fn square_root<T: Element>(a: T, precision_ignored: bool) -> Option<(T, Exceptions)> {
    let result = T::from_float(T::float_square_root(a.float()));
    if !(is_ordinary(a) && is_ordinary(result)) {
        return None;
    }
    let root = significand(result);
    let exact = precision_ignored || odd_part(root * root) == odd_part(significand(a));
    Some((result, Exceptions::PRECISION.when(!exact)))
}
