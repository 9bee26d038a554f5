//! The limits of what is buffered and remembered.

use super::*;

#[test]
fn records_are_forgotten_one_word_beyond_the_limit() {
    let long = vec![7; REMEMBERED_MAX / 2];
    let mut bench = Bench::new();
    bench.sample(1, 1, C1).record(2, 1, C1, &long);
    bench.sample(3, 2, C2).record(4, 2, C2, &long);
    assert_eq!(bench.own.remembered, REMEMBERED_MAX);
    bench.out();
    bench.sample(5, 1, C1);
    assert_eq!(bench.out(), [(4, late(1))], "at the limit");
    bench.record(6, 3, C3, &[1]);
    bench.sample(7, 1, C1).sample(8, 2, C2);
    let given_up = missing(MissingReason::GivenUp);
    assert_eq!(bench.out(), [(6, given_up), (7, given_up)], "one beyond");
    assert_eq!(bench.out.counts.orphans, 1);
}

#[test]
fn samples_wait_up_to_the_limit_and_one_byte_beyond_are_given_up() {
    // Chains of zeros, which the system provides without touching the memory.
    let sample = |bytes: usize| {
        let mut chain = vec![0; (bytes - SLOT_BYTES) / 8];
        let at = chain.len() - 2;
        (chain[at], chain[at + 1]) = (PERF_CONTEXT_USER_DEFERRED, C1);
        sampled(chain)
    };
    let mut bench = Bench::new();
    bench.own = OwnStitcher::default();
    bench.tell(1, 1, sample(HELD_BYTES_MAX));
    assert_eq!(bench.out(), []);
    let mut bench = Bench::new();
    bench.own = OwnStitcher::default();
    bench.tell(1, 1, sample(HELD_BYTES_MAX + 8));
    assert_eq!(bench.out(), [(0, missing(MissingReason::GivenUp))]);
}

#[test]
fn an_abandoned_sample_stops_waiting_and_the_rest_still_wait() {
    // Four samples of one stay fit; with the fifth the older half is given up.
    let one = SLOT_BYTES + 4 * 8;
    let mut bench = Bench::within(4 * one);
    (0..4).for_each(|i| {
        bench.sample(i, 1, C1);
    });
    assert_eq!(bench.out(), []);

    bench.sample(4, 2, C2);
    let given_up = missing(MissingReason::GivenUp);
    let expected = [(0, given_up), (1, given_up), (2, given_up)];
    assert_eq!(bench.out(), expected);
    bench.record(5, 1, C1, &[7]).record(6, 2, C2, &[8]);
    assert_eq!(bench.out(), [(3, stitched(5)), (4, stitched(6))]);

    // A stay whose samples were all given up is no longer awaited.
    let mut bench = Bench::within(one);
    bench.sample(1, 1, C1).sample(2, 2, C2);
    assert_eq!(bench.out(), [(0, given_up)]);
    bench.record(3, 3, C1, &[7]);
    assert_eq!(bench.out.counts.foreign, 0, "C1 is not awaited");
    bench.record(4, 3, C2, &[7]);
    assert_eq!(bench.out.counts.foreign, 1, "C2 is");
    bench.record(5, 2, C2, &[7]);
    assert_eq!(bench.out(), [(1, stitched(4))]);
}
