//! `rcpss` and `rsqrtss`, as Intel CPUs look them up in tables.
//!
//! Intel's manual only promises a relative error of at most 1.5 × 2^-12. The results of a CPU (an
//! Intel Xeon with AMX) for all operands show what its tables hold: the result, rounded to 12
//! fraction bits, for the middle of an interval of operands that share their top 11 (`rcpss`) or 10
//! (`rsqrtss`) fraction bits. CPUs of other vendors have other tables.
//!
//! No exception is raised; denormal operands count as zero and tiny results become zero, whatever
//! MXCSR says.

use super::super::Class;
use super::{Operand, decode, default_nan, infinity, quiet};

/// The result for operands that are not ordinary, which both functions share.
fn special(a: u32, operand: Operand) -> Option<u32> {
    match operand.class {
        Class::QuietNan | Class::SignalingNan => Some(quiet(a)),
        Class::Zero => Some(infinity(operand.value.negative)),
        _ => None,
    }
}

/// A result of `significand × 2^(biased exponent − 127 − 12)`, where the significand has 13 bits.
fn assemble(sign: u32, biased_exponent: i32, significand: u32) -> u32 {
    if biased_exponent <= 0 {
        return sign;
    }
    sign | (biased_exponent as u32) << 23 | (significand & 0xfff) << 11
}

/// `rcpss`: approximately `1 ÷ a`.
pub(crate) fn reciprocal(a: u32) -> u32 {
    let x = decode(a, true);
    if let Some(result) = special(a, x) {
        return result;
    }
    let sign = a & 1 << 31;
    if x.class == Class::Infinity {
        return sign;
    }
    // In units of 2^-12; the quotient in units of 2^-14 before it is rounded.
    let middle = (1 << 12) | (a >> 11 & 0xffe) | 1;
    let significand = ((1 << 26) / middle + 1) >> 1;
    assemble(sign, 126 - x.value.exponent, significand)
}

/// `rsqrtss`: approximately `1 ÷ √a`.
pub(crate) fn reciprocal_square_root(a: u32) -> u32 {
    let x = decode(a, true);
    if let Some(result) = special(a, x) {
        return result;
    }
    if x.value.negative {
        return default_nan();
    }
    if x.class == Class::Infinity {
        return 0;
    }
    // In units of 2^-11; the square of the result in units of 2^-28.
    let odd = x.value.exponent & 1;
    let middle = ((1 << 11) | u64::from(a >> 12 & 0x7fe) | 1) << odd;
    let significand = (((1_u64 << 39) / middle).isqrt() + 1) >> 1;
    assemble(0, 126 - (x.value.exponent >> 1), significand as u32)
}
