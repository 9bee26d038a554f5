//! Addition, subtraction, multiplication, division and square root.

use super::super::{Class, Exceptions};
use super::{
    Element, Env, decode, default_nan, denormal_flag, finish, infinity, native, propagate_nan,
};

/// `a + b`, as `addss` and `addsd` with destination `a` and source `b`.
pub(crate) fn add<T: Element>(a: T, b: T, env: Env) -> (T, Exceptions) {
    if env.is_native()
        && let Some(result) = native::add(a, b, false, env.precision_ignored)
    {
        return result;
    }
    sum(a, b, false, env)
}

/// `a − b`, as `subss` and `subsd`.
pub(crate) fn subtract<T: Element>(a: T, b: T, env: Env) -> (T, Exceptions) {
    if env.is_native()
        && let Some(result) = native::add(a, b, true, env.precision_ignored)
    {
        return result;
    }
    sum(a, b, true, env)
}

fn sum<T: Element>(a: T, b: T, subtract: bool, env: Env) -> (T, Exceptions) {
    let x = decode(a, env.denormals_are_zero);
    let y = decode(b, env.denormals_are_zero);
    if let Some(result) = propagate_nan((a, x.class), (b, y.class)) {
        return result;
    }
    let addend = if subtract { y.value.negate() } else { y.value };
    let denormal = denormal_flag(x.class, y.class);
    match (x.class, y.class) {
        (Class::Infinity, Class::Infinity) if x.value.negative != addend.negative => {
            (default_nan(), Exceptions::INVALID)
        }
        (Class::Infinity, _) => (infinity(x.value.negative), denormal),
        (_, Class::Infinity) => (infinity(addend.negative), denormal),
        _ => {
            let (result, exceptions) = finish(x.value.add(addend, env.rounding), env);
            (result, exceptions | denormal)
        }
    }
}

/// `a × b`, as `mulss` and `mulsd`.
pub(crate) fn multiply<T: Element>(a: T, b: T, env: Env) -> (T, Exceptions) {
    // The host's own multiplication, where it is known to give the same.
    if env.is_native()
        && let Some(result) = native::multiply(a, b, env.precision_ignored)
    {
        return result;
    }

    let x = decode(a, env.denormals_are_zero);
    let y = decode(b, env.denormals_are_zero);

    if let Some(result) = propagate_nan((a, x.class), (b, y.class)) {
        return result;
    }

    // After NaNs: these take precedence over the denormal exception.
    let denormal = denormal_flag(x.class, y.class);
    match (x.class, y.class) {
        (Class::Infinity, Class::Zero) | (Class::Zero, Class::Infinity) => {
            (default_nan(), Exceptions::INVALID)
        }
        (Class::Infinity, _) | (_, Class::Infinity) => {
            (infinity(x.value.negative != y.value.negative), denormal)
        }
        _ => {
            let (result, exceptions) = finish(x.value.multiply(y.value), env);
            (result, exceptions | denormal)
        }
    }
}

/// `a ÷ b`, as `divss` and `divsd`.
pub(crate) fn divide<T: Element>(a: T, b: T, env: Env) -> (T, Exceptions) {
    if env.is_native()
        && let Some(result) = native::divide(a, b, env.precision_ignored)
    {
        return result;
    }

    let x = decode(a, env.denormals_are_zero);
    let y = decode(b, env.denormals_are_zero);

    if let Some(result) = propagate_nan((a, x.class), (b, y.class)) {
        return result;
    }

    // Also of an infinity and of a zero.
    let negative = x.value.negative != y.value.negative;
    let denormal = denormal_flag(x.class, y.class);

    match (x.class, y.class) {
        (Class::Infinity, Class::Infinity) | (Class::Zero, Class::Zero) => {
            (default_nan(), Exceptions::INVALID)
        }
        (Class::Infinity, _) => (infinity(negative), denormal),
        // #Z has priority over a denormal operand (SDM volume 1).
        (_, Class::Zero) => (infinity(negative), Exceptions::DIVIDE_BY_ZERO),
        (_, Class::Infinity) => {
            let zero = super::super::unpacked::Unpacked::zero(negative);
            (finish(zero, env).0, denormal)
        }
        _ => {
            let (result, exceptions) = finish(x.value.divide(y.value), env);
            (result, exceptions | denormal)
        }
    }
}

/// The square root of `a`, as `sqrtss` and `sqrtsd`.
pub(crate) fn square_root<T: Element>(a: T, env: Env) -> (T, Exceptions) {
    let x = decode(a, env.denormals_are_zero);
    if let Some(result) = propagate_nan((a, x.class), (a, x.class)) {
        return result;
    }
    if x.class == Class::Zero {
        return finish(x.value, env);
    }
    if x.value.negative {
        return (default_nan(), Exceptions::INVALID);
    }
    if x.class == Class::Infinity {
        return (a, Exceptions::NONE);
    }
    if env.is_native()
        && let Some(result) = native::square_root(a, env.precision_ignored)
    {
        return result;
    }
    let (result, exceptions) = finish(x.value.square_root(), env);
    (result, exceptions | denormal_flag(x.class, x.class))
}
