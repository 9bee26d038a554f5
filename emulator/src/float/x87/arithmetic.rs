//! Addition, subtraction, multiplication, division, square root, comparison and `fxam`.

use super::super::{Class, Exceptions, Relation};
use super::{
    Env, F80, INVALID, Operand, Outcome, denormal_flag, finish, propagate_nan, propagate_one,
};
use std::cmp::Ordering;

/// `fadd`.
pub(crate) fn add(a: F80, b: F80, env: Env) -> Outcome<F80> {
    sum(a, b, false, env)
}

/// `fsub`: `a − b`; `fsubr` exchanges them.
pub(crate) fn subtract(a: F80, b: F80, env: Env) -> Outcome<F80> {
    sum(a, b, true, env)
}

fn sum(a: F80, b: F80, subtract: bool, env: Env) -> Outcome<F80> {
    let (x, y) = (a.operand(), b.operand());
    if let Some(outcome) = propagate_nan(x, y) {
        return outcome;
    }
    let addend = if subtract { y.value.negate() } else { y.value };
    let denormal = denormal_flag(x, y);
    match (x.class, y.class) {
        (Class::Infinity, Class::Infinity) if x.value.negative != addend.negative => INVALID,
        (Class::Infinity, _) => Outcome::exact(a, denormal),
        (_, Class::Infinity) => Outcome::exact(F80::infinity(addend.negative), denormal),
        _ => finish(x.value.add(addend, env.rounding), env.precision, env).raise(denormal),
    }
}

/// `fmul`.
pub(crate) fn multiply(a: F80, b: F80, env: Env) -> Outcome<F80> {
    let (x, y) = (a.operand(), b.operand());
    if let Some(outcome) = propagate_nan(x, y) {
        return outcome;
    }
    let denormal = denormal_flag(x, y);
    match (x.class, y.class) {
        (Class::Infinity, Class::Zero) | (Class::Zero, Class::Infinity) => INVALID,
        (Class::Infinity, _) | (_, Class::Infinity) => Outcome::exact(
            F80::infinity(x.value.negative != y.value.negative),
            denormal,
        ),
        _ => finish(x.value.multiply(y.value), env.precision, env).raise(denormal),
    }
}

/// `fdiv`: `a ÷ b`; `fdivr` exchanges them.
pub(crate) fn divide(a: F80, b: F80, env: Env) -> Outcome<F80> {
    let (x, y) = (a.operand(), b.operand());
    if let Some(outcome) = propagate_nan(x, y) {
        return outcome;
    }
    let negative = x.value.negative != y.value.negative;
    let denormal = denormal_flag(x, y);
    match (x.class, y.class) {
        (Class::Infinity, Class::Infinity) | (Class::Zero, Class::Zero) => INVALID,
        (Class::Infinity, _) => Outcome::exact(F80::infinity(negative), denormal),
        (_, Class::Zero) => Outcome::exact(F80::infinity(negative), Exceptions::DIVIDE_BY_ZERO),
        (_, Class::Infinity) => Outcome::exact(F80::zero(negative), denormal),
        _ => finish(x.value.divide(y.value), env.precision, env).raise(denormal),
    }
}

/// `fsqrt`.
pub(crate) fn square_root(a: F80, env: Env) -> Outcome<F80> {
    let x = a.operand();
    if let Some(outcome) = propagate_one(x) {
        return outcome;
    }
    match x.class {
        Class::Zero => Outcome::exact(a, Exceptions::NONE),
        _ if x.value.negative => INVALID,
        Class::Infinity => Outcome::exact(a, Exceptions::NONE),
        _ => finish(x.value.square_root(), env.precision, env).raise(denormal_flag(x, x)),
    }
}

/// `fcom` and `fcomi`, and with a zero `b` `ftst`: any NaN is invalid.
pub(crate) fn compare_ordered(a: F80, b: F80) -> (Relation, Exceptions) {
    compare(a, b, true)
}

/// `fucom` and `fucomi`: signaling NaNs and unsupported patterns are invalid.
pub(crate) fn compare_unordered(a: F80, b: F80) -> (Relation, Exceptions) {
    compare(a, b, false)
}

fn compare(a: F80, b: F80, quiet_is_invalid: bool) -> (Relation, Exceptions) {
    let (x, y) = (a.operand(), b.operand());
    if let Some(nan) = propagate_nan(x, y) {
        return (
            Relation::Unordered,
            nan.exceptions | Exceptions::INVALID.when(quiet_is_invalid),
        );
    }
    let rank = |operand: Operand| match (operand.class, operand.value.negative) {
        (Class::Infinity, true) => -1,
        (Class::Infinity, false) => 1,
        _ => 0,
    };
    let order = match rank(x).cmp(&rank(y)) {
        Ordering::Equal if rank(x) == 0 => x.value.compare(y.value),
        order => order,
    };
    let relation = match order {
        Ordering::Less => Relation::Less,
        Ordering::Equal => Relation::Equal,
        Ordering::Greater => Relation::Greater,
    };
    (relation, denormal_flag(x, y))
}

/// `fxam`: the class and the sign. The caller reports an empty register.
pub(crate) fn classify(a: F80) -> (Class, bool) {
    (a.class(), a.is_negative())
}
