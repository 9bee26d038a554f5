//! Detecting that execve has returned, and that a thread continued after a sample.

use super::*;

/// The kernel entry, another one, and their callees.
const ENTRY: u64 = KERNEL;
const OTHER: u64 = KERNEL + 0x100;
const A: u64 = KERNEL + 0x1000;
const B: u64 = KERNEL + 0x2000;
const C: u64 = KERNEL + 0x3000;

/// A sample of thread 1 in a callee of `entry`.
fn called(bench: &mut Bench, callee: u64, entry: u64) {
    let chain = vec![
        PERF_CONTEXT_KERNEL,
        callee,
        entry,
        PERF_CONTEXT_USER_DEFERRED,
        C1,
    ];
    let time = bench.key;
    bench.tell(time, 1, sampled(chain));
}

/// The outcome of a sample in `now` after an execve, with samples in `then` before it.
fn after_execve(then: &[(u64, u64)], now: (u64, u64)) -> Stitch {
    let mut bench = Bench::new();
    for (callee, entry) in then {
        called(&mut bench, *callee, *entry);
    }
    bench.tell(100, 1, ItemKind::Exec);
    called(&mut bench, now.0, now.1);
    let record = bench.key;
    bench.record(200, 1, C1, &[7]);
    let out = bench.out();
    for (key, how) in &out[..then.len()] {
        assert_eq!(
            *how,
            missing(MissingReason::Exec),
            "sample {key}, before the execve"
        );
    }
    let (_, how) = out[then.len()];
    assert!(
        how == missing(MissingReason::Exec) || how == stitched(record),
        "{how:?}"
    );
    how
}

#[test]
fn an_execve_has_returned_where_the_entry_called_something_else() {
    let exec = missing(MissingReason::Exec);
    assert_eq!(after_execve(&[(A, ENTRY)], (B, ENTRY)), stitched(3));
    assert_eq!(after_execve(&[(A, ENTRY)], (A, ENTRY)), exec);
    assert_eq!(after_execve(&[(A, ENTRY)], (B, OTHER)), exec);
    assert_eq!(after_execve(&[(A, ENTRY)], (A, OTHER)), exec);
    // Another callee than in all samples so far.
    let both = [(A, ENTRY), (C, ENTRY)];
    assert_eq!(after_execve(&both, (B, ENTRY)), stitched(4));
    assert_eq!(after_execve(&both, (A, ENTRY)), exec);
    assert_eq!(after_execve(&both, (C, ENTRY)), exec);
    // Undecidable without anything to compare with.
    let marker = (PERF_CONTEXT_KERNEL, ENTRY);
    assert_eq!(after_execve(&[marker], (B, ENTRY)), exec);
    // A marker is not a callee.
    assert_eq!(after_execve(&[(A, ENTRY)], marker), exec);
}

#[test]
fn a_sample_after_the_return_is_of_the_new_program() {
    let mut bench = Bench::new();
    called(&mut bench, A, ENTRY);
    bench.tell(1, 1, ItemKind::Exec);
    called(&mut bench, A, ENTRY);
    called(&mut bench, B, ENTRY);
    called(&mut bench, A, ENTRY);
    bench.record(9, 1, C1, &[7]);
    let exec = missing(MissingReason::Exec);
    let expected = [(0, exec), (2, exec), (3, stitched(5)), (4, stitched(5))];
    assert_eq!(bench.out(), expected);
}

#[test]
fn eight_calls_are_remembered_and_not_one_more() {
    assert_eq!(CALLS_MAX, 8);
    let calls = |n: u64| -> Vec<(u64, u64)> { (0..n).map(|i| (A + i, ENTRY)).collect() };
    let exec = missing(MissingReason::Exec);
    assert_eq!(after_execve(&calls(8), (A + 7, ENTRY)), exec);
    assert_eq!(after_execve(&calls(9), (A + 8, ENTRY)), stitched(11));
    // The same call takes no more room.
    let mut same = vec![(A, ENTRY); 9];
    same.push((B, ENTRY));
    assert_eq!(after_execve(&same, (B, ENTRY)), exec);
}

#[test]
fn a_record_that_starts_elsewhere_was_taken_later() {
    let user = PERF_CONTEXT_USER;
    let moved = |record| Stitch::Moved { record };
    type How = fn(u64) -> Stitch;
    let cases: [(Option<u64>, &[u64], How); 8] = [
        (Some(7), &[7, 8], stitched),
        (Some(7), &[user, 7, 8], stitched),
        (Some(7), &[8, 7], moved),
        (Some(7), &[user, 8, 7], moved),
        // It is unknown where the sample was taken, or where the thread was later.
        (None, &[8, 7], stitched),
        (None, &[user, 8], stitched),
        (Some(7), &[user], stitched),
        (Some(7), &[], |record| Stitch::Empty { record }),
    ];
    for (ip, frames, how) in cases {
        let mut bench = Bench::new();
        let chain = vec![PERF_CONTEXT_USER_DEFERRED, C1];
        let defer = true;
        bench.tell(1, 1, ItemKind::Sample { defer, chain, ip });
        bench.record(2, 1, C1, frames);
        assert_eq!(bench.out(), [(0, how(1))], "{ip:?} {frames:x?}");
    }
}
