//! The elementary functions compared with each other: identities that hold to about 115 bits.

use super::super::Rounding;
use super::super::elementary::{
    ONE, PI, arc_tangent, cosine, exp2_minus_1, log2, log2_plus_1, sine, sum,
};
use super::super::unpacked::Unpacked;
use super::Sequence;

const ARGUMENTS: usize = 2000;

/// Relative difference, as an exponent of two.
const TOLERANCE: i32 = -115;

#[track_caller]
fn assert_close(a: Unpacked, b: Unpacked) {
    let difference = a.add(b.negate(), Rounding::NearestEven);
    let close = difference.is_zero() || difference.exponent - b.exponent <= TOLERANCE;
    assert!(close, "{a:x?} and {b:x?}");
}

/// A number from `2^-8` up to 1, with 64 significant bits.
fn fraction(sequence: &mut Sequence) -> Unpacked {
    let exponent = -1 - (sequence.next() % 8) as i32;
    let significand = u128::from(sequence.next() | 1 << 63) << 64;
    Unpacked {
        negative: false,
        exponent,
        significand,
    }
}

#[test]
fn logarithm_undoes_exponential() {
    let mut sequence = Sequence::new(5);
    for _ in 0..ARGUMENTS {
        let x = fraction(&mut sequence);
        assert_close(log2_plus_1(exp2_minus_1(x)), x);
        assert_close(log2_plus_1(exp2_minus_1(x.negate())), x.negate());
    }
}

#[test]
fn the_logarithm_of_a_product_is_a_sum() {
    let mut sequence = Sequence::new(6);
    for _ in 0..ARGUMENTS {
        let (x, y) = (fraction(&mut sequence), fraction(&mut sequence).scale(-20));
        assert_close(log2(x.multiply(y)), sum(log2(x), log2(y)));
    }
}

#[test]
fn sine_and_cosine_are_on_the_circle_at_the_angle_given() {
    let mut sequence = Sequence::new(7);
    for _ in 0..ARGUMENTS {
        let t = fraction(&mut sequence);
        let angle = arc_tangent(t, ONE);
        let (s, c) = (sine(angle), cosine(angle));
        assert_close(s.divide(c), t);
        assert_close(sum(s.multiply(s), c.multiply(c)), ONE);
        assert_close(sum(angle, arc_tangent(ONE, t)), PI.scale(-1));
    }
}
