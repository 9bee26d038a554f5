//! Conversions between binary16 and binary32. MXCSR.FZ does not apply to either; MXCSR.DAZ only to
//! binary32, and binary16 raises no DE (SDM volume 1).

use super::super::{Exceptions, Rounding};
use super::Env;
use super::convert::convert;

/// `vcvtph2ps`.
pub(crate) fn from_binary16(a: u16, env: Env) -> (u32, Exceptions) {
    let env = Env {
        denormals_are_zero: false,
        ..env
    };
    let (result, exceptions) = convert::<u16, u32>(a, env);
    (result, exceptions.without(Exceptions::DENORMAL))
}

/// `vcvtps2ph`, with the rounding direction of its immediate.
pub(crate) fn to_binary16(a: u32, rounding: Rounding, env: Env) -> (u16, Exceptions) {
    let env = Env {
        rounding,
        flush_to_zero: false,
        ..env
    };
    convert(a, env)
}
