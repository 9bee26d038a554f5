//! SSE arithmetic compared with the host's, with and without the native fast path.

use super::super::sse::{self, Env, IntegerWidth};
use super::super::{Exceptions, Relation, Rounding};
use super::Sequence;

const NEAREST: Env = Env {
    rounding: Rounding::NearestEven,
    flush_to_zero: false,
    denormals_are_zero: false,
    overflow_masked: true,
    underflow_masked: true,
    precision_ignored: false,
};

/// Flushing does not change results that are not tiny, but disables the native fast path.
const FLUSHING: Env = Env {
    flush_to_zero: true,
    ..NEAREST
};

const PAIRS: usize = 50_000;

/// NaNs compare equal: the CPU's vectors check which NaN it is.
fn same64(a: u64, b: f64) -> bool {
    a == b.to_bits() || (f64::from_bits(a).is_nan() && b.is_nan())
}

fn same32(a: u32, b: f32) -> bool {
    a == b.to_bits() || (f32::from_bits(a).is_nan() && b.is_nan())
}

#[test]
fn arithmetic_is_the_hosts_when_rounding_to_nearest() {
    let mut sequence = Sequence::new(1);
    for _ in 0..PAIRS {
        let (a, b) = (sequence.binary64(), sequence.binary64());
        // Rust's operators round to nearest, too.
        let (x, y) = (f64::from_bits(a), f64::from_bits(b));
        assert!(same64(sse::add(a, b, NEAREST).0, x + y), "{a:x} + {b:x}");
        assert!(
            same64(sse::subtract(a, b, NEAREST).0, x - y),
            "{a:x} - {b:x}"
        );
        assert!(
            same64(sse::multiply(a, b, NEAREST).0, x * y),
            "{a:x} * {b:x}"
        );
        assert!(same64(sse::divide(a, b, NEAREST).0, x / y), "{a:x} / {b:x}");
        assert!(
            same64(sse::square_root(a, NEAREST).0, x.sqrt()),
            "sqrt {a:x}"
        );
        assert!(
            same32(sse::to_binary32(a, NEAREST).0, x as f32),
            "{a:x} to binary32"
        );

        // The same with singles.
        let (a, b) = (sequence.binary32(), sequence.binary32());
        let (x, y) = (f32::from_bits(a), f32::from_bits(b));
        assert!(same32(sse::add(a, b, NEAREST).0, x + y), "{a:x} + {b:x}");
        assert!(
            same32(sse::subtract(a, b, NEAREST).0, x - y),
            "{a:x} - {b:x}"
        );
        assert!(
            same32(sse::multiply(a, b, NEAREST).0, x * y),
            "{a:x} * {b:x}"
        );
        assert!(same32(sse::divide(a, b, NEAREST).0, x / y), "{a:x} / {b:x}");
        assert!(
            same32(sse::square_root(a, NEAREST).0, x.sqrt()),
            "sqrt {a:x}"
        );
        assert!(
            same64(sse::to_binary64(a, NEAREST).0, f64::from(x)),
            "{a:x} to binary64"
        );
    }
}

/// The fast path must also report the same exceptions as the exact computation.
#[test]
fn the_short_way_equals_the_long_one() {
    type Operation = fn(u64, u64, Env) -> (u64, Exceptions);

    let operations: [Operation; 5] = [
        sse::add,
        sse::subtract,
        sse::multiply,
        sse::divide,
        |a, _, env| sse::square_root(a, env),
    ];

    let mut sequence = Sequence::new(2);
    for _ in 0..PAIRS {
        let (a, b) = (sequence.binary64(), sequence.binary64());
        for (index, operation) in operations.iter().enumerate() {
            // FTZ takes the long way. Where a result underflows, the two differ.
            let long = operation(a, b, FLUSHING);
            if long.1.contains(Exceptions::UNDERFLOW) || long.1.contains(Exceptions::DENORMAL) {
                continue;
            }

            // The host's own operation, where it can be used.
            let short = operation(a, b, NEAREST);
            assert_eq!(short, long, "operation {index} on {a:x} and {b:x}");

            // Where nobody looks at the precision exception, it may be reported or not.
            let ignored = operation(
                a,
                b,
                Env {
                    precision_ignored: true,
                    ..NEAREST
                },
            );
            assert_eq!(ignored.0, long.0, "operation {index} on {a:x} and {b:x}");
            assert_eq!(
                ignored.1 | Exceptions::PRECISION,
                long.1 | Exceptions::PRECISION
            );
        }
    }
}

/// The four directions bracket the exact result.
#[test]
fn directed_rounding_brackets_the_result() {
    let mut sequence = Sequence::new(3);
    for _ in 0..PAIRS {
        let (a, b) = (sequence.binary64(), sequence.binary64());

        let with = |rounding| {
            sse::multiply(
                a,
                b,
                Env {
                    rounding,
                    ..NEAREST
                },
            )
        };

        let (down, exceptions) = with(Rounding::Down);
        let (up, zero) = (with(Rounding::Up).0, with(Rounding::Zero).0);
        let (x, y) = (f64::from_bits(down), f64::from_bits(up));

        if x.is_nan() {
            continue;
        }

        // An inexact result lies between two neighbours.
        let inexact = exceptions.contains(Exceptions::PRECISION);
        assert_eq!(y, if inexact { x.next_up() } else { x }, "{a:x} * {b:x}");
        assert_eq!(
            zero,
            if x.is_sign_negative() { up } else { down },
            "{a:x} * {b:x}"
        );
    }
}

#[test]
fn an_exact_tiny_result_underflows_only_when_that_is_unmasked() {
    let tiny = f64::MIN_POSITIVE.to_bits();
    let half = 0.5_f64.to_bits();
    assert_eq!(sse::multiply(tiny, half, NEAREST).1, Exceptions::NONE);
    let unmasked = Env {
        underflow_masked: false,
        ..NEAREST
    };
    assert_eq!(sse::multiply(tiny, half, unmasked).1, Exceptions::UNDERFLOW);
    let flushed = sse::multiply(tiny, half, FLUSHING);
    assert_eq!(flushed, (0, Exceptions::UNDERFLOW | Exceptions::PRECISION));
    let ignored = Env {
        underflow_masked: false,
        ..FLUSHING
    };
    assert_eq!(sse::multiply(tiny, half, ignored).0, tiny >> 1);
}

/// The flags that a CPU (an Intel Xeon with AMX) reports with its #XM.
#[test]
fn unmasked_overflow_and_underflow_are_inexact_only_by_the_significand() {
    let unmasked = Env {
        overflow_masked: false,
        underflow_masked: false,
        ..NEAREST
    };
    let (largest, smallest) = (2_f64.powi(1023).to_bits(), f64::MIN_POSITIVE.to_bits());
    let third = (1.0_f64 / 3.0).to_bits();
    assert_eq!(
        sse::multiply(largest, largest, unmasked).1,
        Exceptions::OVERFLOW
    );
    assert_eq!(
        sse::multiply(smallest, third, unmasked).1,
        Exceptions::UNDERFLOW
    );
    let both = Exceptions::UNDERFLOW | Exceptions::DENORMAL;
    assert_eq!(sse::multiply(1, third, unmasked).1, both);
    let both = Exceptions::OVERFLOW | Exceptions::PRECISION;
    assert_eq!(sse::to_binary32(1e300_f64.to_bits(), unmasked).1, both);
}

#[test]
fn comparisons_and_integers_are_the_hosts() {
    let mut sequence = Sequence::new(4);
    for _ in 0..PAIRS {
        let (a, b) = (sequence.binary64(), sequence.binary64());

        let (x, y) = (f64::from_bits(a), f64::from_bits(b));
        let expected = match x.partial_cmp(&y) {
            Some(std::cmp::Ordering::Less) => Relation::Less,
            Some(std::cmp::Ordering::Equal) => Relation::Equal,
            Some(std::cmp::Ordering::Greater) => Relation::Greater,
            None => Relation::Unordered,
        };
        assert_eq!(
            sse::compare_ordered(a, b, NEAREST).0,
            expected,
            "{a:x} {b:x}"
        );

        // Half of the numbers have few bits, so that exact results and ties occur.
        let integer = sequence.sparse() as i64;
        assert_eq!(
            sse::from_integer::<u64>(integer, NEAREST).0,
            (integer as f64).to_bits()
        );
        assert_eq!(
            sse::from_integer::<u32>(integer, NEAREST).0,
            (integer as f32).to_bits()
        );

        let (truncated, exceptions) =
            sse::to_integer(a, IntegerWidth::Bits64, Rounding::Zero, NEAREST);
        // `as` saturates, and the instruction gives the integer indefinite.
        if !exceptions.contains(Exceptions::INVALID) {
            assert_eq!(truncated, x as i64, "{a:x}");
        }

        // `ceil` rounds up.
        let (integral, _) = sse::round_to_integral(a, Rounding::Up, false, NEAREST);
        assert!(same64(integral, x.ceil()), "{a:x}");
    }
}
