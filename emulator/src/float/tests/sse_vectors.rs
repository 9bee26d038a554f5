//! SSE operations against recorded results of a CPU.

use super::super::sse::{self, Element, Env, IntegerWidth, Predicate};
use super::super::{Exceptions, Relation, Rounding};
use super::{hex, vectors};
use IntegerWidth::{Bits32, Bits64};

fn env(mxcsr: u64) -> Env {
    Env {
        rounding: Rounding::from_bits((mxcsr >> 13) as u8),
        flush_to_zero: mxcsr >> 15 & 1 == 1,
        denormals_are_zero: mxcsr >> 6 & 1 == 1,
        overflow_masked: mxcsr >> 10 & 1 == 1,
        underflow_masked: mxcsr >> 11 & 1 == 1,
        precision_ignored: false,
    }
}

fn wide<T: Element>((result, exceptions): (T, Exceptions)) -> (u64, Exceptions) {
    (result.widen(), exceptions)
}

/// ZF, PF and CF as `comisd` sets them.
fn flags((relation, exceptions): (Relation, Exceptions)) -> (u64, Exceptions) {
    let flags = match relation {
        Relation::Less => 1,
        Relation::Equal => 0x40,
        Relation::Greater => 0,
        Relation::Unordered => 0x45,
    };
    (flags, exceptions)
}

fn predicate(name: &str, a: u64, b: u64, env: Env) -> Option<(u64, Exceptions)> {
    const NAMES: [&str; 8] = ["eq", "lt", "le", "unord", "neq", "nlt", "nle", "ord"];
    let name = name.strip_prefix("cmp")?.strip_suffix("sd")?;
    let bits = NAMES.iter().position(|candidate| *candidate == name)?;
    let (holds, exceptions) = sse::satisfies(a, b, Predicate::from_bits(bits as u8), env);
    Some((if holds { u64::MAX } else { 0 }, exceptions))
}

fn integer<T: Element>(
    a: T,
    width: IntegerWidth,
    rounding: Rounding,
    env: Env,
) -> (u64, Exceptions) {
    let (result, exceptions) = sse::to_integer(a, width, rounding, env);
    let mask = if width == Bits32 {
        u64::from(u32::MAX)
    } else {
        u64::MAX
    };
    (result as u64 & mask, exceptions)
}

fn compute(name: &str, a: u64, b: u64, env: Env) -> (u64, Exceptions) {
    // Singles are in the lower halves of the vectors' words.
    let (x, y) = (a as u32, b as u32);
    let current = env.rounding;

    match name {
        "addsd" => sse::add(a, b, env),
        "subsd" => sse::subtract(a, b, env),
        "mulsd" => sse::multiply(a, b, env),
        "divsd" => sse::divide(a, b, env),
        "sqrtsd" => sse::square_root(a, env),
        "minsd" => sse::minimum(a, b, env),
        "maxsd" => sse::maximum(a, b, env),
        "addss" => wide(sse::add(x, y, env)),
        "subss" => wide(sse::subtract(x, y, env)),
        "mulss" => wide(sse::multiply(x, y, env)),
        "divss" => wide(sse::divide(x, y, env)),
        "sqrtss" => wide(sse::square_root(x, env)),
        "minss" => wide(sse::minimum(x, y, env)),
        "maxss" => wide(sse::maximum(x, y, env)),
        "comisd" => flags(sse::compare_ordered(a, b, env)),
        "ucomiss" => flags(sse::compare_unordered(x, y, env)),
        "cvtsd2si32" => integer(a, Bits32, current, env),
        "cvtsd2si64" => integer(a, Bits64, current, env),
        // The second `t`: truncated, whatever MXCSR says.
        "cvttsd2si32" => integer(a, Bits32, Rounding::Zero, env),
        "cvttsd2si64" => integer(a, Bits64, Rounding::Zero, env),
        "cvtss2si32" => integer(x, Bits32, current, env),
        "cvttss2si64" => integer(x, Bits64, Rounding::Zero, env),
        "cvtsi2sd64" => sse::from_integer(a as i64, env),
        "cvtsi2ss32" => wide(sse::from_integer::<u32>(i64::from(a as i32), env)),
        "cvtsi2ss64" => wide(sse::from_integer::<u32>(a as i64, env)),
        // The number is the immediate: bit 2 takes the direction from MXCSR, bit 3 suppresses #P.
        "roundsd4" => sse::round_to_integral(a, current, false, env),
        "roundsd12" => sse::round_to_integral(a, current, true, env),
        "roundss1" => wide(sse::round_to_integral(x, Rounding::Down, false, env)),
        "roundss10" => wide(sse::round_to_integral(x, Rounding::Up, true, env)),
        "cvtss2sd" => sse::to_binary64(x, env),
        "cvtsd2ss" => wide(sse::to_binary32(a, env)),
        // Approximations, which raise nothing.
        "rcpss" => (u64::from(sse::reciprocal(x)), Exceptions::NONE),
        "rsqrtss" => (u64::from(sse::reciprocal_square_root(x)), Exceptions::NONE),
        _ => predicate(name, a, b, env).unwrap_or_else(|| panic!("unknown instruction {name}")),
    }
}

#[test]
fn results_and_flags_are_the_cpus() {
    let mut count = 0;
    for [name, mxcsr, a, b, result, exceptions] in vectors(include_str!("sse_vectors.txt")) {
        let (got, flags) = compute(name, hex(a), hex(b), env(hex(mxcsr)));
        let got = (got, u64::from(flags.bits()));
        assert_eq!(
            got,
            (hex(result), hex(exceptions)),
            "{name} {mxcsr} {a} {b}"
        );
        assert_eq!(flags.before_result().bits(), flags.bits() & 7);
        count += 1;
    }
    assert!(count > 400, "only {count} vectors");
}
