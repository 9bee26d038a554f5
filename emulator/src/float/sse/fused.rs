//! Multiplication and addition with a single rounding.

use super::super::{Class, Exceptions};
use super::{Element, Env, decode, default_nan, finish, infinity, native, quiet};

/// `x × y + z`, with the product, the addend, or both negated: `vfmadd..`, `vfnmadd..` and their
/// relatives.
///
/// The first NaN among `x`, `y` and `z` is the result. If `z` is a quiet NaN, the product of an
/// infinity and zero is not invalid (SDM volume 1).
pub(crate) fn multiply_add<T: Element>(
    [x, y, z]: [T; 3],
    [negate_product, negate_addend]: [bool; 2],
    env: Env,
) -> (T, Exceptions) {
    // Natively, it stays open whether the result is exact.
    if env.is_native()
        && env.precision_ignored
        && let Some(result) = native::multiply_add(x, y, z, negate_product, negate_addend)
    {
        return (result, Exceptions::NONE);
    }

    let operands = [x, y, z].map(|operand| decode(operand, env.denormals_are_zero));
    let classes = operands.map(|operand| operand.class);
    let [a, b, c] = operands;

    let nan = classes.iter().position(|class| class.is_nan());
    if let Some(number) = nan {
        let invalid = classes.contains(&Class::SignalingNan);
        let nan = quiet([x, y, z][number]);
        return (nan, Exceptions::INVALID.when(invalid));
    }

    // After the NaNs: infinity times zero plus a quiet NaN is that NaN, without an exception.
    let no_product = matches!(
        (a.class, b.class),
        (Class::Infinity, Class::Zero) | (Class::Zero, Class::Infinity)
    );
    if no_product {
        return (default_nan(), Exceptions::INVALID);
    }

    let negative = a.value.negative != b.value.negative;
    let product_negative = negative != negate_product;
    let addend = if negate_addend {
        c.value.negate()
    } else {
        c.value
    };

    let denormal = Exceptions::DENORMAL.when(classes.contains(&Class::Denormal));
    let product_infinite = a.class == Class::Infinity || b.class == Class::Infinity;
    match (product_infinite, c.class == Class::Infinity) {
        // Infinity minus infinity.
        (true, true) if product_negative != addend.negative => (default_nan(), Exceptions::INVALID),
        (true, _) => (infinity(product_negative), denormal),
        (_, true) => (infinity(addend.negative), denormal),
        _ => {
            let product = a.value.multiply(b.value);
            let product = if negate_product {
                product.negate()
            } else {
                product
            };

            // Rounded only once, after the sum.
            let (result, exceptions) = finish(product.add(addend, env.rounding), env);
            (result, exceptions | denormal)
        }
    }
}
