//! Floating point as the CPU computes it: SSE binary32 and binary64, and the 80-bit x87 format.
//!
//! Pure functions from bit patterns and a control word to a bit pattern and exception flags; no
//! machine state. Everything but the x87 transcendental functions is exact in every bit, the flags
//! included; those are within one unit in the last place of the CPU's.
//!
//! - [`unpacked`] and [`round`] are the core: one exact number, one rounding for all formats.
//! - [`sse`] works on `u32` (binary32) and `u64` (binary64).
//! - [`x87`] works on [`x87::F80`].
//!
//! Results are those of masked exceptions. A caller with unmasked exceptions compares the returned
//! flags with its masks: see [`Exceptions::before_result`].
//!
//! Source: Intel SDM volume 1, chapters 4 (formats, exceptions), 8 (x87) and 11 (SSE).

mod elementary;
mod round;
pub(crate) mod sse;
#[cfg(test)]
mod tests;
mod unpacked;
pub(crate) mod x87;

/// A set of floating-point exception flags, in the bit positions of MXCSR and the x87 status word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exceptions(u8);

impl Exceptions {
    /// No exception.
    pub(crate) const NONE: Self = Self(0);
    /// IE: an operation without a meaningful result, or a signaling NaN.
    pub(crate) const INVALID: Self = Self(1);
    /// DE: an operand was denormal.
    pub(crate) const DENORMAL: Self = Self(1 << 1);
    /// ZE: a finite number was divided by zero.
    pub(crate) const DIVIDE_BY_ZERO: Self = Self(1 << 2);
    /// OE: the rounded result is beyond the format's largest number.
    pub(crate) const OVERFLOW: Self = Self(1 << 3);
    /// UE: the result is tiny (and inexact, when the exception is masked).
    pub(crate) const UNDERFLOW: Self = Self(1 << 4);
    /// PE: the result is not exact.
    pub(crate) const PRECISION: Self = Self(1 << 5);

    /// The flags as bits 0 to 5.
    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    /// Whether every flag of `other` is set.
    pub(crate) const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flags known before a result is computed: IE, DE and ZE. If one of them is unmasked, the
    /// instruction reports only these and writes nothing.
    pub(crate) const fn before_result(self) -> Self {
        Self(self.0 & 0b111)
    }

    /// The flags that are not in `other`.
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    const fn when(self, condition: bool) -> Self {
        if condition { self } else { Self::NONE }
    }
}

impl std::ops::BitOr for Exceptions {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl std::ops::BitOrAssign for Exceptions {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// A rounding direction, as the RC field of MXCSR and of the x87 control word encodes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// To nearest, ties to even.
    NearestEven,
    /// Toward negative infinity.
    Down,
    /// Toward positive infinity.
    Up,
    /// Toward zero.
    Zero,
}

impl Rounding {
    /// The direction of a two-bit RC field. Higher bits are ignored.
    pub(crate) const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NearestEven,
            1 => Self::Down,
            2 => Self::Up,
            _ => Self::Zero,
        }
    }
}

/// What a bit pattern stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Zero of either sign.
    Zero,
    /// Nonzero with the lowest exponent field; in the 80-bit format also pseudo-denormals.
    Denormal,
    /// A normalized number.
    Normal,
    /// Infinity of either sign.
    Infinity,
    /// A NaN with the top fraction bit set.
    QuietNan,
    /// A NaN with the top fraction bit clear.
    SignalingNan,
    /// An 80-bit pattern the CPU refuses: unnormals, pseudo-NaNs and pseudo-infinities.
    Unsupported,
}

impl Class {
    /// Whether it is a NaN of either kind.
    pub(crate) const fn is_nan(self) -> bool {
        matches!(self, Self::QuietNan | Self::SignalingNan)
    }
}

/// How two numbers compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    /// The first is less.
    Less,
    /// They are equal; zeros are equal whatever their signs.
    Equal,
    /// The first is greater.
    Greater,
    /// At least one is a NaN.
    Unordered,
}
