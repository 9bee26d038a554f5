//! Comparisons, minimum and maximum.

use super::super::{Class, Exceptions, Relation};
use super::{Element, Env, Operand, decode, denormal_flag, sign_bit};
use std::cmp::Ordering;

/// The relation of two operands that are not NaNs.
fn relation(a: Operand, b: Operand) -> Relation {
    let rank = |operand: Operand| match (operand.class, operand.value.negative) {
        (Class::Infinity, true) => -1,
        (Class::Infinity, false) => 1,
        _ => 0,
    };
    let order = match rank(a).cmp(&rank(b)) {
        Ordering::Equal if rank(a) == 0 => a.value.compare(b.value),
        order => order,
    };
    match order {
        Ordering::Less => Relation::Less,
        Ordering::Equal => Relation::Equal,
        Ordering::Greater => Relation::Greater,
    }
}

fn compare<T: Element>(a: T, b: T, quiet_is_invalid: bool, env: Env) -> (Relation, Exceptions) {
    let x = decode(a, env.denormals_are_zero);
    let y = decode(b, env.denormals_are_zero);
    if x.class.is_nan() || y.class.is_nan() {
        let signaling = x.class == Class::SignalingNan || y.class == Class::SignalingNan;
        let invalid = Exceptions::INVALID.when(signaling || quiet_is_invalid);
        return (Relation::Unordered, invalid);
    }
    (relation(x, y), denormal_flag(x.class, y.class))
}

/// `comiss` and `comisd`: any NaN is invalid.
pub(crate) fn compare_ordered<T: Element>(a: T, b: T, env: Env) -> (Relation, Exceptions) {
    compare(a, b, true, env)
}

/// `ucomiss` and `ucomisd`: only a signaling NaN is invalid.
pub(crate) fn compare_unordered<T: Element>(a: T, b: T, env: Env) -> (Relation, Exceptions) {
    compare(a, b, false, env)
}

/// A predicate of `cmpps` and its relatives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Predicate {
    /// The relations for which it holds.
    holds: u8,
    /// Any NaN is invalid, not only a signaling one.
    quiet_is_invalid: bool,
}

const LESS: u8 = 1;
const EQUAL: u8 = 2;
const GREATER: u8 = 4;
const UNORDERED: u8 = 8;

/// The relations for which each predicate holds (SDM volume 2, CMPPD, table 3-1).
const HOLDS: [u8; 16] = [
    EQUAL,
    LESS,
    LESS | EQUAL,
    UNORDERED,
    LESS | GREATER | UNORDERED,
    EQUAL | GREATER | UNORDERED,
    GREATER | UNORDERED,
    LESS | EQUAL | GREATER,
    EQUAL | UNORDERED,
    LESS | UNORDERED,
    LESS | EQUAL | UNORDERED,
    0,
    LESS | GREATER,
    EQUAL | GREATER,
    GREATER,
    LESS | EQUAL | GREATER | UNORDERED,
];

impl Predicate {
    /// The predicate of an immediate byte. Bits above the low five are ignored; SSE's forms have
    /// only the first eight predicates.
    pub(crate) const fn from_bits(bits: u8) -> Self {
        // "Less" and "less or equal", and their opposites; bit 4 turns it around.
        let is_order = matches!(bits & 3, 1 | 2);
        Self {
            holds: HOLDS[(bits & 15) as usize],
            quiet_is_invalid: is_order != (bits >> 4 & 1 != 0),
        }
    }
}

/// Whether `a` and `b` satisfy a predicate.
pub(crate) fn satisfies<T: Element>(
    a: T,
    b: T,
    predicate: Predicate,
    env: Env,
) -> (bool, Exceptions) {
    let (relation, exceptions) = compare(a, b, predicate.quiet_is_invalid, env);
    let relation = match relation {
        Relation::Less => LESS,
        Relation::Equal => EQUAL,
        Relation::Greater => GREATER,
        Relation::Unordered => UNORDERED,
    };
    (predicate.holds & relation != 0, exceptions)
}

/// `minss` and `minsd`: `b` if either is a NaN or both are zeros.
pub(crate) fn minimum<T: Element>(a: T, b: T, env: Env) -> (T, Exceptions) {
    select(a, b, Relation::Less, env)
}

/// `maxss` and `maxsd`: `b` if either is a NaN or both are zeros.
pub(crate) fn maximum<T: Element>(a: T, b: T, env: Env) -> (T, Exceptions) {
    select(a, b, Relation::Greater, env)
}

/// `a` if its relation to `b` is `wanted`, else `b`; denormals are flushed as MXCSR says.
fn select<T: Element>(a: T, b: T, wanted: Relation, env: Env) -> (T, Exceptions) {
    let (relation, exceptions) = compare(a, b, true, env);
    let chosen = if relation == wanted { a } else { b };
    let value = decode(chosen, env.denormals_are_zero);
    if value.class == Class::Zero {
        return (T::narrow(chosen.widen() & sign_bit(T::FORMAT)), exceptions);
    }
    (chosen, exceptions)
}
