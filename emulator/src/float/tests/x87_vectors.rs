//! x87 operations against recorded results of a CPU.

use super::super::x87::{self, Env, F80, IntegerWidth, MemoryOperand, Outcome, Precision};
use super::super::{Class, Exceptions, Relation, Rounding};
use super::{hex, vectors};
use IntegerWidth::{Bits16, Bits32, Bits64};

const C0: u64 = 1 << 8;
const C1: u64 = 1 << 9;
const C2: u64 = 1 << 10;
const C3: u64 = 1 << 14;

fn env(control: u64) -> Env {
    Env {
        rounding: Rounding::from_bits((control >> 10) as u8),
        precision: Precision::from_bits((control >> 8) as u8),
        overflow_masked: control >> 3 & 1 == 1,
        underflow_masked: control >> 4 & 1 == 1,
    }
}

fn parse(text: &str) -> F80 {
    let Some((sign_exponent, significand)) = text.split_once('.') else {
        return F80::default();
    };
    F80 {
        sign_exponent: hex(sign_exponent) as u16,
        significand: hex(significand),
    }
}

fn show(value: F80) -> String {
    format!("{:04x}.{:016x}", value.sign_exponent, value.significand)
}

fn raised(exceptions: Exceptions, conditions: u64) -> u64 {
    u64::from(exceptions.bits()) | conditions
}

fn outcome<T>(outcome: Outcome<T>, show: impl Fn(T) -> String) -> (String, u64) {
    let conditions = if outcome.rounded_up { C1 } else { 0 };
    (show(outcome.value), raised(outcome.exceptions, conditions))
}

fn pair((top, below): (F80, F80)) -> String {
    format!("{},{}", show(top), show(below))
}

fn relation((relation, exceptions): (Relation, Exceptions)) -> (String, u64) {
    let conditions = match relation {
        Relation::Less => C0,
        Relation::Equal => C3,
        Relation::Greater => 0,
        Relation::Unordered => C0 | C2 | C3,
    };
    ("-".into(), raised(exceptions, conditions))
}

fn remainder(a: F80, b: F80, to_nearest: bool, env: Env) -> (String, u64) {
    let result = x87::remainder(a, b, to_nearest, env);
    let conditions = match result.quotient {
        None => C2,
        Some(quotient) => [(0, C1), (1, C3), (2, C0)]
            .iter()
            .filter(|(bit, _)| quotient >> bit & 1 == 1)
            .fold(0, |conditions, (_, condition)| conditions | condition),
    };
    (show(result.value), raised(result.exceptions, conditions))
}

fn class(a: F80) -> (String, u64) {
    let (class, negative) = x87::classify(a);
    let conditions = match class {
        Class::Unsupported => 0,
        Class::QuietNan | Class::SignalingNan => C0,
        Class::Normal => C2,
        Class::Infinity => C2 | C0,
        Class::Zero => C3,
        Class::Denormal => C3 | C2,
    };
    ("-".into(), conditions | if negative { C1 } else { 0 })
}

fn integer(a: F80, width: IntegerWidth, rounding: Rounding) -> (String, u64) {
    let result = x87::to_integer(a, width, rounding);
    outcome(result, |value| match width {
        Bits16 => format!("{:04x}", value as u16),
        Bits32 => format!("{:08x}", value as u32),
        Bits64 => format!("{value:016x}"),
    })
}

fn load((value, exceptions): (F80, Exceptions)) -> (String, u64) {
    (show(value), raised(exceptions, 0))
}

fn compute(name: &str, a: F80, b: F80, memory: u64, env: Env) -> (String, u64) {
    // `fisttp` ignores the rounding of the control word.
    let to_zero = Rounding::Zero;

    match name {
        "fadd" => outcome(x87::add(a, b, env), show),
        "fsub" => outcome(x87::subtract(a, b, env), show),
        "fmul" => outcome(x87::multiply(a, b, env), show),
        "fdiv" => outcome(x87::divide(a, b, env), show),
        "fsqrt" => outcome(x87::square_root(a, env), show),
        "frndint" => outcome(x87::round_to_integral(a, env), show),
        "fscale" => outcome(x87::scale(a, b, env), show),
        "fprem" => remainder(a, b, false, env),
        "fprem1" => remainder(a, b, true, env),
        "fxtract" => outcome(x87::extract(a), pair),
        "fcom" => relation(x87::compare_ordered(a, b)),
        "fucom" => relation(x87::compare_unordered(a, b)),
        // A comparison with +0.0.
        "ftst" => relation(x87::compare_ordered(a, F80::default())),
        "fxam" => class(a),
        "fst32" => outcome(x87::to_binary32(a, env), |value| format!("{value:08x}")),
        "fst64" => outcome(x87::to_binary64(a, env), |value| format!("{value:016x}")),
        "fist16" => integer(a, Bits16, env.rounding),
        "fist32" => integer(a, Bits32, env.rounding),
        "fist64" => integer(a, Bits64, env.rounding),
        "fisttp16" => integer(a, Bits16, to_zero),
        "fisttp32" => integer(a, Bits32, to_zero),
        "fisttp64" => integer(a, Bits64, to_zero),
        // Ten bytes of decimal digits, the last one with the sign.
        "fbstp" => outcome(x87::to_decimal(a, env), |bytes| {
            bytes
                .iter()
                .rev()
                .map(|byte| format!("{byte:02x}"))
                .collect()
        }),
        "fld32" => load(x87::from_binary32(memory as u32)),
        "fld64" => load(x87::from_binary64(memory)),
        "fild64" => (show(x87::from_integer(memory as i64)), 0),
        // The vectors have eight bytes of memory; the other two are zeros.
        "fbld" => {
            let mut bytes = [0; 10];
            bytes[..8].copy_from_slice(&memory.to_le_bytes());
            (show(x87::from_decimal(bytes)), 0)
        }
        // An operand in memory may raise exceptions of its own when it is converted.
        "fadd32" => {
            let operand = MemoryOperand::binary32(memory as u32);
            outcome(operand.arithmetic(x87::add(a, operand.value, env)), show)
        }
        // Reversed: the memory operand is the dividend.
        "fdivr64" => {
            let operand = MemoryOperand::binary64(memory);
            outcome(operand.arithmetic(x87::divide(operand.value, a, env)), show)
        }
        "fcom64" => {
            let operand = MemoryOperand::binary64(memory);
            relation(operand.comparison(x87::compare_ordered(a, operand.value)))
        }
        _ => panic!("unknown instruction {name}"),
    }
}

/// The transcendental instructions, whose results may be off by one unit in the last place.
fn transcendental(name: &str, a: F80, b: F80, env: Env) -> Option<(String, u64)> {
    let out_of_range = (show(a), C2);
    let swap = |(value, pushed): (F80, F80)| pair((pushed, value));
    Some(match name {
        "f2xm1" => outcome(x87::exponential(a, env), show),
        "fyl2x" => outcome(x87::logarithm(a, b, env), show),
        "fyl2xp1" => outcome(x87::logarithm_plus_1(a, b, env), show),
        "fpatan" => outcome(x87::arc_tan(b, a, env), show),
        "fsin" => x87::sin(a, env).map_or(out_of_range, |value| outcome(value, show)),
        "fcos" => x87::cos(a, env).map_or(out_of_range, |value| outcome(value, show)),
        "fsincos" => x87::sin_cos(a, env).map_or(out_of_range, |value| outcome(value, swap)),
        "fptan" => x87::tan(a, env).map_or(out_of_range, |value| outcome(value, swap)),
        _ => return None,
    })
}

/// The number of steps between two results, each perhaps a pair.
fn distance(a: &str, b: &str) -> u128 {
    let place = |text: &str| {
        let value = parse(text);
        let exponent = u128::from(value.sign_exponent & 0x7fff).max(1);
        let magnitude = (exponent << 63) + u128::from(value.significand);
        u128::from(value.sign_exponent >> 15) << 100 | magnitude
    };
    assert_eq!(a.split(',').count(), b.split(',').count(), "{a} and {b}");
    a.split(',')
        .zip(b.split(','))
        .map(|(a, b)| place(a).abs_diff(place(b)))
        .max()
        .unwrap_or(0)
}

#[test]
fn results_and_flags_are_the_cpus() {
    let mut count = 0;
    for [name, control, a, b, result, status] in vectors(include_str!("x87_vectors.txt")) {
        let env = env(hex(control));
        let context = format!("{name} {control} {a} {b}");
        count += 1;
        if let Some((got, got_status)) = transcendental(name, parse(a), parse(b), env) {
            assert!(
                distance(&got, result) <= 1,
                "{context}: {got}, CPU {result}"
            );
            assert_eq!(got_status & !C1, hex(status) & !C1, "{context}");
            continue;
        }
        let memory = [a, b]
            .into_iter()
            .find(|text| !text.contains('.') && *text != "-");
        let memory = memory.map_or(0, hex);
        let got = compute(name, parse(a), parse(b), memory, env);
        assert_eq!(got, (result.to_owned(), hex(status)), "{context}");
    }
    assert!(count > 380, "only {count} vectors");
}
