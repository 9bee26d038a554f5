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

/// A predicate of `cmpps` and its relatives. The negated ones hold for NaNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Predicate {
    /// Equal.
    Equal,
    /// Less; NaNs are invalid.
    LessThan,
    /// Less or equal; NaNs are invalid.
    LessOrEqual,
    /// A NaN is involved.
    Unordered,
    /// Not equal.
    NotEqual,
    /// Not less; NaNs are invalid.
    NotLessThan,
    /// Not less nor equal; NaNs are invalid.
    NotLessOrEqual,
    /// No NaN is involved.
    Ordered,
}

impl Predicate {
    /// The predicate of an immediate byte. Bits above the low three are ignored, as the SSE forms
    /// do.
    pub(crate) const fn from_bits(bits: u8) -> Self {
        match bits & 7 {
            0 => Self::Equal,
            1 => Self::LessThan,
            2 => Self::LessOrEqual,
            3 => Self::Unordered,
            4 => Self::NotEqual,
            5 => Self::NotLessThan,
            6 => Self::NotLessOrEqual,
            _ => Self::Ordered,
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
    use Predicate as P;
    let quiet_is_invalid = matches!(
        predicate,
        P::LessThan | P::LessOrEqual | P::NotLessThan | P::NotLessOrEqual
    );
    let (relation, exceptions) = compare(a, b, quiet_is_invalid, env);
    let at_most = matches!(relation, Relation::Less | Relation::Equal);
    let holds = match predicate {
        P::Equal => relation == Relation::Equal,
        P::LessThan => relation == Relation::Less,
        P::LessOrEqual => at_most,
        P::Unordered => relation == Relation::Unordered,
        P::NotEqual => relation != Relation::Equal,
        P::NotLessThan => relation != Relation::Less,
        P::NotLessOrEqual => !at_most,
        P::Ordered => relation != Relation::Unordered,
    };
    (holds, exceptions)
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
