//! perf's list: its order, and records that match nothing on it.

use super::super::{Counts, Mode, stitch};
use super::*;
use crate::callchain::PERF_CONTEXT_KERNEL;

fn item(key: u64, tid: i32, what: ItemKind) -> Item {
    Item {
        key,
        time: Some(key),
        tid,
        event: 0,
        what,
    }
}

fn sample(key: u64, tid: i32, user: &[u64]) -> Item {
    let chain = [&[PERF_CONTEXT_KERNEL, 1][..], user].concat();
    let (defer, ip) = (true, None);
    item(key, tid, ItemKind::Sample { defer, chain, ip })
}

fn deferred(key: u64, tid: i32, cookie: u64) -> Item {
    sample(key, tid, &[PERF_CONTEXT_USER_DEFERRED, cookie])
}

fn record(key: u64, tid: i32, cookie: u64) -> Item {
    let (cookie, frames) = (Some(cookie), vec![7]);
    item(key, tid, ItemKind::Record { cookie, frames })
}

/// The samples delivered by perf's method, in order.
fn perf(items: Vec<Item>) -> (Vec<(u64, Stitch)>, Counts) {
    let (out, counts) = stitch(Mode::Perf72, items);
    (out.into_iter().map(|s| (s.key, s.how)).collect(), counts)
}

#[test]
fn at_the_end_the_list_goes_out_in_its_order_whatever_the_thread() {
    let items = (0..100).map(|key| deferred(key, 1000 - key as i32, 5));
    let (out, counts) = perf(items.collect());
    let end = Stitch::Missing(MissingReason::End);
    assert_eq!(out, (0..100).map(|key| (key, end)).collect::<Vec<_>>());
    assert_eq!((counts.samples, counts.deferred), (100, 100));
    assert_eq!(counts.out_of_order, 0);
}

#[test]
fn a_record_is_an_orphan_if_no_sample_on_the_list_has_its_cookie() {
    let stitched = |record| Stitch::Stitched { record };
    // Only the first of the two has the cookie.
    let (out, counts) = perf(vec![deferred(0, 1, 5), deferred(1, 1, 6), record(2, 1, 5)]);
    let other = Stitch::Missing(MissingReason::OtherCookie);
    assert_eq!(out, [(0, stitched(2)), (1, other)]);
    assert_eq!((counts.records, counts.orphans), (1, 0));
    // No sample has the cookie; there is no sample; the sample belongs to another thread.
    let (out, counts) = perf(vec![
        deferred(0, 1, 5),
        record(1, 1, 6),
        record(2, 1, 5),
        deferred(3, 2, 5),
        record(4, 1, 5),
    ]);
    assert_eq!(out, [(0, other), (3, Stitch::Missing(MissingReason::End))]);
    assert_eq!((counts.records, counts.orphans), (3, 3));
}

#[test]
fn only_samples_whose_chain_is_deferred_are_counted_so() {
    let items = vec![
        sample(0, 1, &[]),
        deferred(1, 1, 5),
        sample(2, 1, &[PERF_CONTEXT_USER_DEFERRED]),
        deferred(3, 1, 5),
        sample(4, 1, &[9]),
    ];
    let (_, counts) = perf(items);
    assert_eq!((counts.samples, counts.deferred), (5, 3));
}
