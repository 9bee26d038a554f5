//! The number in which all formats are computed: a sign, an exponent and 128 significand bits.
//!
//! Sums, products, quotients and square roots of numbers of at most 64 significant bits are exact
//! except for the lowest bit, which is sticky: it is set if anything nonzero lies below it. A later
//! rounding to at most 64 bits needs no more. Wider operands lose a few of the lowest bits.

use super::Rounding;
use std::cmp::Ordering;

/// `significand × 2^(exponent − 127)`, negated if `negative`.
///
/// The top bit of the significand is set, except for zero, whose significand is 0 and whose
/// exponent is meaningless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unpacked {
    pub(super) negative: bool,
    pub(super) exponent: i32,
    pub(super) significand: u128,
}

/// `value >> count`, with the lowest bit set if a one was shifted out.
pub(super) fn shift_right_sticky(value: u128, count: u32) -> u128 {
    match count {
        0 => value,
        1..128 => (value >> count) | u128::from(value << (128 - count) != 0),
        _ => u128::from(value != 0),
    }
}

/// The 256-bit product of two 128-bit numbers: its high and its low half.
fn widening_multiply(a: u128, b: u128) -> (u128, u128) {
    const LOW: u128 = u64::MAX as u128;
    let (a1, a0) = (a >> 64, a & LOW);
    let (b1, b0) = (b >> 64, b & LOW);
    let low = a0 * b0;
    let middle = a1 * b0 + (low >> 64);
    let middle_low = a0 * b1 + (middle & LOW);
    let high = a1 * b1 + (middle >> 64) + (middle_low >> 64);
    (high, (middle_low << 64) | (low & LOW))
}

impl Unpacked {
    /// Zero with a sign.
    pub(super) const fn zero(negative: bool) -> Self {
        Self {
            negative,
            exponent: 0,
            significand: 0,
        }
    }

    /// `significand × 2^(exponent − 127)`, normalized so that the top bit is set.
    pub(super) const fn new(negative: bool, exponent: i32, significand: u128) -> Self {
        if significand == 0 {
            return Self::zero(negative);
        }
        let shift = significand.leading_zeros();
        Self {
            negative,
            exponent: exponent - shift as i32,
            significand: significand << shift,
        }
    }

    /// The integer `magnitude`, negated if `negative`.
    pub(super) const fn integer(negative: bool, magnitude: u128) -> Self {
        Self::new(negative, 127, magnitude)
    }

    pub(super) const fn is_zero(self) -> bool {
        self.significand == 0
    }

    pub(super) const fn negate(self) -> Self {
        Self {
            negative: !self.negative,
            ..self
        }
    }

    pub(super) const fn abs(self) -> Self {
        Self {
            negative: false,
            ..self
        }
    }

    /// The value times `2^count`.
    pub(super) const fn scale(self, count: i32) -> Self {
        Self {
            exponent: self.exponent + count,
            ..self
        }
    }

    /// The order of the magnitudes.
    pub(super) fn compare_magnitude(self, other: Self) -> Ordering {
        match (self.is_zero(), other.is_zero()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => {
                (self.exponent, self.significand).cmp(&(other.exponent, other.significand))
            }
        }
    }

    /// The order of the numbers; both zeros are equal.
    pub(super) fn compare(self, other: Self) -> Ordering {
        if self.is_zero() && other.is_zero() {
            return Ordering::Equal;
        }
        match (self.negative, other.negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => self.compare_magnitude(other),
            (true, true) => other.compare_magnitude(self),
        }
    }

    /// The sum. `rounding` only decides the sign of a zero sum of operands with different signs.
    pub(super) fn add(self, other: Self, rounding: Rounding) -> Self {
        let zero_sign = rounding == Rounding::Down;

        // An exact 0 from opposite signs is +0, but -0 when rounding down (IEEE 754, 6.3).
        match (self.is_zero(), other.is_zero()) {
            (true, true) if self.negative == other.negative => return self,
            (true, true) => return Self::zero(zero_sign),
            (true, false) => return other,
            (false, true) => return self,
            (false, false) => {}
        }

        let (large, small) = match self.compare_magnitude(other) {
            Ordering::Less => (other, self),
            _ => (self, other),
        };

        let distance = large.exponent.abs_diff(small.exponent);

        // Shifted by one, so that the sum has room for a carry.
        let a = shift_right_sticky(large.significand, 1);
        let b = shift_right_sticky(small.significand, distance.saturating_add(1));

        let sum = if large.negative == small.negative {
            a + b
        } else {
            a - b
        };

        if sum == 0 {
            return Self::zero(zero_sign);
        }
        Self::new(large.negative, large.exponent + 1, sum)
    }

    /// The product.
    pub(super) fn multiply(self, other: Self) -> Self {
        let negative = self.negative != other.negative;
        if self.is_zero() || other.is_zero() {
            return Self::zero(negative);
        }
        let (mut high, mut low) = widening_multiply(self.significand, other.significand);
        let mut exponent = self.exponent + other.exponent + 1;
        if high >> 127 == 0 {
            high = (high << 1) | (low >> 127);
            low <<= 1;
            exponent -= 1;
        }
        Self {
            negative,
            exponent,
            significand: high | u128::from(low != 0),
        }
    }

    /// The quotient by a divisor that is not zero.
    pub(super) fn divide(self, divisor: Self) -> Self {
        let negative = self.negative != divisor.negative;
        if self.is_zero() {
            return Self::zero(negative);
        }

        // Both significands have their highest bit set, so the quotient is between 1/2 and 2.
        let exponent = self.exponent - divisor.exponent;
        let (a, b) = (self.significand, divisor.significand);
        if a as u64 == 0 && b as u64 == 0 {
            // 64-bit operands: 64 or 65 quotient bits, then 63 more.
            let b = b >> 64;
            let (high, rest) = (a / b, a % b);
            let (low, rest) = ((rest << 63) / b, (rest << 63) % b);
            let quotient = (high << 63) | low | u128::from(rest != 0);
            return Self::new(negative, exponent, quotient);
        }

        // Bit by bit; `rest` stays below the divisor, so only its doubling can carry out.
        let mut quotient = u128::from(a >= b);
        let mut rest = if a >= b { a - b } else { a };
        for _ in 0..127 {
            let carry = rest >> 127 == 1;
            rest <<= 1;
            quotient <<= 1;
            if carry || rest >= b {
                rest = rest.wrapping_sub(b);
                quotient |= 1;
            }
        }

        // The lowest bit says that there was more, so that rounding is right.
        Self::new(negative, exponent, quotient | u128::from(rest != 0))
    }

    /// The square root of a number that is not negative and has at most 64 significant bits.
    pub(super) fn square_root(self) -> Self {
        if self.is_zero() {
            return self;
        }
        let odd = self.exponent & 1;
        let radicand = self.significand >> (1 - odd);
        let root = radicand.isqrt();
        let rest = radicand - root * root;
        // The root of an integer is never halfway between integers, so the next bit and a sticky
        // bit are enough.
        let significand = (root << 64) | (u128::from(rest > root) << 63) | u128::from(rest != 0);
        Self {
            negative: false,
            exponent: (self.exponent - odd) / 2,
            significand,
        }
    }
}
