//! The stay of a sample or record, and why a sample has no record.

use super::*;

#[test]
fn the_17th_open_stay_drives_out_the_oldest() {
    let cookie = |i: u64| (2 * i + 3) << 32 | 1;
    let mut bench = Bench::new();
    (0..16).for_each(|i| {
        bench.sample(i, 1, cookie(i));
    });
    // All sixteen are remembered: the oldest still gets its record.
    bench.record(20, 1, cookie(0), &[7]);
    assert_eq!(bench.out(), [(0, stitched(16))]);
    bench.sample(21, 1, cookie(16));
    assert_eq!(bench.out(), [], "the stay that went had its record");
    bench.sample(22, 1, cookie(17));
    assert_eq!(bench.out(), [(1, missing(MissingReason::NotWritten))]);
    bench.record(23, 1, cookie(2), &[7]);
    assert_eq!(bench.out(), [(2, stitched(19))], "the next one stays");
}

#[test]
fn whether_a_far_sight_is_of_the_same_stay() {
    const ROUND: u64 = COOKIE_ROUND_NS;
    // The time of a record for a sample at 1000; what happens in between; the outcome.
    type Between = fn(&mut Bench);
    let cases: [(u64, Between, Stitch); 7] = [
        (1000 + ROUND - 1, |_| {}, stitched(1)),
        // The stay is still waiting, with no other stay and no loss in between.
        (1000 + ROUND, |_| {}, stitched(1)),
        (1000 + 9 * ROUND, |_| {}, stitched(1)),
        // Within the limit, nothing else matters.
        (
            1000 + ROUND - 1,
            |b| {
                b.lost(Some(2000));
            },
            stitched(2),
        ),
        (
            1000 + ROUND,
            |b| {
                b.lost(Some(2000));
            },
            missing(MissingReason::Lost),
        ),
        (
            1000 + ROUND - 1,
            |b| {
                b.sample(2000, 1, C2);
            },
            stitched(2),
        ),
        (
            1000 + ROUND,
            |b| {
                b.sample(2000, 1, C2);
            },
            missing(MissingReason::NotWritten),
        ),
    ];

    for (i, (time, between, expected)) in cases.into_iter().enumerate() {
        let mut bench = Bench::new();
        bench.sample(1000, 1, C1);
        between(&mut bench);
        bench.record(time, 1, C1, &[7]);
        let out = bench.end();
        assert_eq!(out[0], (0, expected), "case {i}");
    }
}

#[test]
fn a_sight_before_the_stays_first_sample_is_as_near_as_one_after() {
    const ROUND: u64 = COOKIE_ROUND_NS;
    for (back, expected) in [
        (ROUND - 1, stitched(2)),
        (ROUND, missing(MissingReason::Lost)),
    ] {
        let mut bench = Bench::new();
        bench.sample(9 * ROUND, 1, C1).lost(Some(9 * ROUND));
        bench.record(9 * ROUND - back, 1, C1, &[7]);
        assert_eq!(bench.end()[0], (0, expected), "{back}");
    }
}

#[test]
fn a_stay_that_has_its_record_does_not_reach_round() {
    const ROUND: u64 = COOKIE_ROUND_NS;
    for (time, expected) in [
        (1000 + ROUND - 1, late(1)),
        (1000 + ROUND, missing(MissingReason::Ambiguous)),
    ] {
        let mut bench = Bench::new();
        bench.sample(1000, 1, C1).record(1001, 1, C1, &[7]);
        bench.sample(time, 1, C1);
        assert_eq!(bench.end(), [(0, stitched(1)), (2, expected)], "{time}");
    }
}

#[test]
fn a_cookie_seen_again_after_it_came_round_belongs_to_nothing_known() {
    const ROUND: u64 = COOKIE_ROUND_NS;
    let mut bench = Bench::new();
    bench.sample(1000, 1, C1).record(1001, 1, C1, &[7]);
    bench.sample(1000 + ROUND, 1, C1);
    // Not even a record a moment later can be assigned to the same stay.
    bench.record(1002 + ROUND, 1, C1, &[8]);
    let out = bench.end();
    assert_eq!(
        out,
        [(0, stitched(1)), (2, missing(MissingReason::Ambiguous))]
    );
    assert_eq!(bench.out.counts.orphans, 1);
}

#[test]
fn the_reason_why_a_sample_has_no_record() {
    type Then = fn(&mut Bench);

    // What happens after the sample, and the reason that it gives.
    let cases: [(&str, Then, MissingReason); 12] = [
        ("nothing else is seen", |_| {}, MissingReason::End),
        (
            "the thread goes on",
            |b| {
                b.sample(5, 1, C2);
            },
            MissingReason::NotWritten,
        ),
        (
            "the thread ends",
            |b| {
                b.tell(5, 1, ItemKind::Exit);
            },
            MissingReason::Exited,
        ),
        (
            // Its own end was not recorded.
            "the thread's number is used again",
            |b| {
                b.tell(5, 1, ItemKind::Fork);
            },
            MissingReason::Exited,
        ),
        (
            "another thread ends",
            |b| {
                b.tell(5, 2, ItemKind::Exit);
            },
            MissingReason::End,
        ),
        (
            "something is lost",
            |b| {
                b.lost(Some(5));
            },
            MissingReason::Lost,
        ),
        (
            // It may have been the record.
            "something is lost at an unknown time",
            |b| {
                b.lost(None);
            },
            MissingReason::Lost,
        ),
        (
            "something is lost before it goes on",
            |b| {
                b.lost(Some(5)).sample(6, 1, C2);
            },
            MissingReason::Lost,
        ),
        (
            "something is lost before it ends",
            |b| {
                b.lost(Some(5)).tell(6, 1, ItemKind::Exit);
            },
            MissingReason::Lost,
        ),
        (
            "the program is replaced",
            |b| {
                b.tell(5, 1, ItemKind::Exec);
            },
            MissingReason::Exec,
        ),
        (
            // The execve is the better reason: it removes the stack, whatever was lost.
            "the program is replaced and something is lost",
            |b| {
                b.tell(5, 1, ItemKind::Exec).lost(Some(6));
            },
            MissingReason::Exec,
        ),
        (
            "another thread's program is replaced",
            |b| {
                b.tell(5, 2, ItemKind::Exec);
            },
            MissingReason::End,
        ),
    ];
    for (what, then, why) in cases {
        let mut bench = Bench::new();

        // One sample of thread 1, and no record for it.
        bench.sample(1, 1, C1);
        then(&mut bench);
        assert_eq!(bench.end()[0], (0, missing(why)), "{what}");
    }
}

#[test]
fn a_loss_before_the_stay_counts_only_if_its_time_is_not_known() {
    for (time, why) in [(Some(0), MissingReason::End), (None, MissingReason::Lost)] {
        let mut bench = Bench::new();
        bench.lost(time).sample(1, 1, C1);
        assert_eq!(bench.end(), [(1, missing(why))], "{time:?}");
    }
}

#[test]
fn at_the_end_the_newest_stay_may_still_come_and_the_others_not() {
    let mut bench = Bench::new();
    bench.sample(1, 1, C1).sample(2, 1, C2).sample(3, 1, C3);
    let why = [
        MissingReason::NotWritten,
        MissingReason::NotWritten,
        MissingReason::End,
    ];
    let why = why.map(missing);
    let expected: Vec<_> = (0..3).zip(why).collect();
    assert_eq!(bench.end(), expected);
}

#[test]
fn a_record_after_exec_tells_of_the_new_program() {
    // Samples before the exec, inside it, and after it has finished.
    let mut bench = Bench::new();
    bench.sample(1, 1, C1).tell(2, 1, ItemKind::Exec);
    bench.sample(3, 1, C1).tell(4, 1, ItemKind::Vdso);
    bench.record(5, 1, C1, &[7]).sample(6, 1, C1);
    let exec = missing(MissingReason::Exec);
    assert_eq!(bench.out(), [(0, exec), (2, exec), (5, late(4))]);
    // A stay that starts inside the exec is marked when [vdso] is mapped; others are not.
    let mut bench = Bench::new();
    bench.tell(1, 1, ItemKind::Exec).sample(2, 1, C1);
    bench.tell(3, 1, ItemKind::Vdso).record(4, 1, C1, &[7]);
    assert_eq!(bench.out(), [(1, exec)]);
    // Only once: the next mapping of [vdso] does not belong to an exec.
    bench.sample(5, 1, C2).tell(6, 1, ItemKind::Vdso);
    bench.record(7, 1, C2, &[7]);
    assert_eq!(bench.out(), [(4, stitched(6))]);
    // Two execs in one stay count as exec.
    bench.sample(8, 1, C3).tell(9, 1, ItemKind::Exec);
    bench.tell(10, 1, ItemKind::Exec).record(11, 1, C3, &[7]);
    assert_eq!(bench.out(), [(7, exec)]);
}

#[test]
fn vdso_without_exec_marks_nothing() {
    let mut bench = Bench::new();
    bench.sample(1, 1, C1).tell(2, 1, ItemKind::Vdso);
    bench.tell(3, 2, ItemKind::Vdso).record(4, 1, C1, &[7]);
    assert_eq!(bench.out(), [(0, stitched(3))]);
}

#[test]
fn the_record_of_an_ended_thread_is_dropped() {
    let mut bench = Bench::new();
    bench.sample(1, 1, C1).record(2, 1, C1, &[7, 8]);
    bench.tell(3, 1, ItemKind::Exit).sample(4, 1, C1);
    let expected = [(0, stitched(1)), (3, missing(MissingReason::End))];
    assert_eq!(bench.end(), expected);
}
