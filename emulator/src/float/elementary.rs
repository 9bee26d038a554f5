//! Elementary functions to more than 110 bits, enough to round to 64 bits correctly in all but one
//! of some 2^45 cases.
//!
//! Power series in Horner form on reduced arguments. The caller handles zeros, infinities and NaNs.

use super::Rounding;
use super::round::round_to_integer;
use super::unpacked::Unpacked;

const fn constant(exponent: i32, significand: u128) -> Unpacked {
    Unpacked {
        negative: false,
        exponent,
        significand,
    }
}

pub(super) const ONE: Unpacked = constant(0, 1 << 127);
pub(super) const PI: Unpacked = constant(1, 0xc90f_daa2_2168_c234_c4c6_628b_80dc_1cd1);
const LN_2: Unpacked = constant(-1, 0xb172_17f7_d1cf_79ab_c9e3_b398_03f2_f6af);
const LOG2_E: Unpacked = constant(0, 0xb8aa_3b29_5c17_f0bb_be87_fed0_691d_3e89);

/// Arc tangents of the eighths from 0 to 1.
const ARC_TANGENTS: [Unpacked; 9] = [
    Unpacked::zero(false),
    constant(-4, 0xfead_d4d5_617b_6e32_c897_989f_3e88_8ef8),
    constant(-3, 0xfadb_afc9_6406_eb15_6dc7_9ef5_f7a2_17e6),
    constant(-2, 0xb7b0_ca0f_26f7_8473_8aa3_2122_dcfe_4483),
    constant(-2, 0xed63_382b_0dda_7b45_6fe4_45ec_bc3a_8d03),
    constant(-1, 0x8f00_5d5e_f7f5_9f9b_5c83_5e16_65c4_3748),
    constant(-1, 0xa4bc_7d19_34f7_0924_19a8_7f2a_457d_ac9f),
    constant(-1, 0xb805_3e2b_c231_9e73_cb2d_a552_10a4_443d),
    constant(-1, 0xc90f_daa2_2168_c234_c4c6_628b_80dc_1cd1),
];

pub(super) fn sum(a: Unpacked, b: Unpacked) -> Unpacked {
    a.add(b, Rounding::NearestEven)
}

/// `a ÷ n` for a small `n`, truncated.
fn divide_small(a: Unpacked, n: u32) -> Unpacked {
    Unpacked::new(a.negative, a.exponent, a.significand / u128::from(n))
}

/// `1 + (z/d₁)(1 + (z/d₂)(1 + …))` for the divisors of `1..=terms`.
fn nested(z: Unpacked, terms: u32, divisor: impl Fn(u32) -> u32) -> Unpacked {
    (1..=terms).rev().fold(ONE, |rest, k| {
        sum(ONE, divide_small(z.multiply(rest), divisor(k)))
    })
}

/// The sine of at most π/4.
pub(super) fn sine(x: Unpacked) -> Unpacked {
    // 0.79^31 / 31! < 2^-120
    x.multiply(nested(x.multiply(x).negate(), 15, |k| 2 * k * (2 * k + 1)))
}

/// The cosine of at most π/4.
pub(super) fn cosine(x: Unpacked) -> Unpacked {
    nested(x.multiply(x).negate(), 15, |k| 2 * k * (2 * k - 1))
}

/// `2^x − 1` for `x` from −1 to 1.
pub(super) fn exp2_minus_1(x: Unpacked) -> Unpacked {
    let y = x.multiply(LN_2);
    // 0.7^34 / 35! < 2^-140
    y.multiply(nested(y, 34, |k| k + 1))
}

/// `1 + z/3 + z²/5 + …` for a small `z`.
fn odd_series(z: Unpacked, terms: u32) -> Unpacked {
    (0..=terms).rev().fold(Unpacked::zero(false), |rest, k| {
        sum(divide_small(ONE, 2 * k + 1), z.multiply(rest))
    })
}

/// The binary logarithm of `(1 + s) / (1 − s)` for `s` of at most 0.2.
fn log2_of_ratio(s: Unpacked) -> Unpacked {
    // 0.2^54 < 2^-125
    s.multiply(odd_series(s.multiply(s), 26))
        .scale(1)
        .multiply(LOG2_E)
}

/// The binary logarithm of a positive number.
pub(super) fn log2(x: Unpacked) -> Unpacked {
    const ROOT_OF_2: u128 = 0xb504_f333 << 96;
    let up = i32::from(x.significand > ROOT_OF_2);
    let mantissa = Unpacked { exponent: -up, ..x };
    let fraction = sum(mantissa, ONE.negate()).divide(sum(mantissa, ONE));
    let exponent = x.exponent + up;
    let whole = Unpacked::integer(exponent < 0, u128::from(exponent.unsigned_abs()));
    sum(whole, log2_of_ratio(fraction))
}

/// The binary logarithm of `1 + x` for `x` above −1.
pub(super) fn log2_plus_1(x: Unpacked) -> Unpacked {
    if x.exponent >= -2 {
        return log2(sum(ONE, x));
    }
    log2_of_ratio(x.divide(sum(ONE.scale(1), x)))
}

/// The angle of the point `(x, y)`, both positive: from 0 to π/2.
pub(super) fn arc_tangent(y: Unpacked, x: Unpacked) -> Unpacked {
    let steep = y.compare_magnitude(x).is_gt();
    let ratio = if steep { x.divide(y) } else { y.divide(x) };
    let eighths = round_to_integer(ratio.scale(3), Rounding::NearestEven)
        .map_or(0, |integer| integer.magnitude);
    let near = Unpacked::new(false, 124, eighths);
    let rest = sum(ratio, near.negate()).divide(sum(ONE, ratio.multiply(near)));
    // (1/16)^36 < 2^-140
    let small = rest.multiply(odd_series(rest.multiply(rest).negate(), 17));
    let angle = sum(ARC_TANGENTS[eighths as usize], small);
    if steep {
        sum(PI.scale(-1), angle.negate())
    } else {
        angle
    }
}
