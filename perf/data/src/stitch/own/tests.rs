//! Each rule of [`OwnStitcher`] in isolation: the stay of a sample or record, the end of a stay,
//! the reason for samples without frames, and what is remembered.

mod bounds;
mod execve;
mod stays;

use super::*;
use crate::callchain::{PERF_CONTEXT_KERNEL, PERF_CONTEXT_USER_DEFERRED};
use crate::stitch::held::SLOT_BYTES;

const KERNEL: u64 = 0xffff_ffff_8100_0000;
/// A cookie of CPU 0; the next one is 2 << 32 more.
const C1: u64 = 3 << 32 | 1;
const C2: u64 = 5 << 32 | 1;
const C3: u64 = 7 << 32 | 1;

/// A stitcher whose bookkeeping is checked after each item. Keys start at 0.
struct Bench {
    own: OwnStitcher,
    out: DeliveredSamples,
    key: u64,
}

impl Bench {
    fn new() -> Self {
        Self::within(HELD_BYTES_MAX)
    }

    fn within(held_bytes_max: usize) -> Self {
        Self {
            own: OwnStitcher::within(held_bytes_max),
            out: DeliveredSamples::default(),
            key: 0,
        }
    }

    fn item(&mut self, time: Option<u64>, tid: i32, event: u64, what: ItemKind) -> &mut Self {
        let key = self.key;
        self.key += 1;
        let item = Item {
            key,
            time,
            tid,
            event,
            what,
        };
        self.own.push(item, &mut self.out);
        self.check_books(key);
        self
    }

    /// Checks that the counters match the contents.
    fn check_books(&self, key: u64) {
        let mut awaited = HashMap::new();
        let mut remembered = 0;
        for thread in self.own.threads.values() {
            assert!(thread.stays.len() <= STAYS_MAX, "item {key}");
            for (place, stay) in thread.stays.iter().enumerate() {
                if let Record::Here { frames, .. } = &stay.record {
                    remembered += frames.len();
                    assert_eq!(place + 1, thread.stays.len(), "item {key}: an old record");
                }
                if let (false, Some(cookie)) = (stay.waiting.is_empty(), stay.name.cookie()) {
                    *awaited.entry(cookie).or_insert(0) += 1;
                }
            }
        }
        assert_eq!(self.own.remembered, remembered, "item {key}");
        assert_eq!(self.own.awaited, awaited, "item {key}");
    }

    fn sample(&mut self, time: u64, tid: i32, cookie: u64) -> &mut Self {
        let chain = vec![
            PERF_CONTEXT_KERNEL,
            KERNEL,
            PERF_CONTEXT_USER_DEFERRED,
            cookie,
        ];
        self.item(Some(time), tid, 0, sampled(chain))
    }

    fn record(&mut self, time: u64, tid: i32, cookie: u64, frames: &[u64]) -> &mut Self {
        let (cookie, frames) = (Some(cookie), frames.to_vec());
        self.item(Some(time), tid, 0, ItemKind::Record { cookie, frames })
    }

    /// A sample of an event, in the form of 2023.
    fn sample_of_event(&mut self, time: u64, tid: i32, event: u64) -> &mut Self {
        let chain = vec![PERF_CONTEXT_KERNEL, KERNEL, PERF_CONTEXT_USER_DEFERRED];
        self.item(Some(time), tid, event, sampled(chain))
    }

    fn record_of_event(&mut self, time: u64, tid: i32, event: u64, frames: &[u64]) -> &mut Self {
        let frames = frames.to_vec();
        let cookie = None;
        self.item(Some(time), tid, event, ItemKind::Record { cookie, frames })
    }

    fn tell(&mut self, time: u64, tid: i32, what: ItemKind) -> &mut Self {
        self.item(Some(time), tid, 0, what)
    }

    fn lost(&mut self, time: Option<u64>) -> &mut Self {
        self.item(time, -1, 0, ItemKind::Lost { count: 1 })
    }

    /// The samples delivered since the last call.
    fn out(&mut self) -> Vec<(u64, Stitch)> {
        self.out.ready.drain(..).map(|s| (s.key, s.how)).collect()
    }

    /// The samples delivered at the end of the data.
    fn end(&mut self) -> Vec<(u64, Stitch)> {
        self.own.finish(&mut self.out);
        assert!(self.own.awaited.is_empty(), "nothing waits after the end");
        assert_eq!(
            self.own.remembered, 0,
            "nothing is remembered after the end"
        );
        self.out()
    }

    fn chains(&mut self) -> Vec<Vec<u64>> {
        self.out.ready.drain(..).map(|s| s.chain).collect()
    }
}

/// A sample in the kernel.
fn sampled(chain: Vec<u64>) -> ItemKind {
    let (defer, ip) = (true, None);
    ItemKind::Sample { defer, chain, ip }
}

fn stitched(record: u64) -> Stitch {
    Stitch::Stitched { record }
}

fn late(record: u64) -> Stitch {
    Stitch::Late { record }
}

fn missing(why: MissingReason) -> Stitch {
    Stitch::Missing(why)
}

#[test]
fn limits_have_their_documented_values() {
    assert_eq!(COOKIE_ROUND_NS, 214_748_364_800);
    assert_eq!(STAYS_MAX, 16);
    assert_eq!(HELD_BYTES_MAX, 134_217_728);
    assert_eq!(REMEMBERED_MAX, 8_388_608);
}

#[test]
fn user_frames_replace_the_cookie_after_one_marker() {
    let plain = vec![PERF_CONTEXT_KERNEL, KERNEL, PERF_CONTEXT_USER, 10, 11];
    let mut bench = Bench::new();
    bench.sample(1, 1, C1).record(2, 1, C1, &[10, 11]);
    assert_eq!(bench.chains(), std::slice::from_ref(&plain));
    // The record has its own marker.
    let frames = [PERF_CONTEXT_USER, 10, 11];
    bench.sample(3, 1, C2).record(4, 1, C2, &frames);
    assert_eq!(bench.chains(), std::slice::from_ref(&plain));
    // A late sample gets the same chain.
    bench.sample(5, 1, C2);
    assert_eq!(bench.chains(), [plain]);
    // Without frames, only the kernel part is left.
    bench.sample(6, 1, C3).record(7, 1, C3, &[]);
    assert_eq!(bench.chains(), [vec![PERF_CONTEXT_KERNEL, KERNEL]]);
}

#[test]
fn a_record_without_frames_is_named_as_empty() {
    let mut bench = Bench::new();
    bench
        .sample(1, 1, C1)
        .record(2, 1, C1, &[])
        .sample(3, 1, C1);
    let empty = Stitch::Empty { record: 1 };
    assert_eq!(bench.out(), [(0, empty), (2, empty)]);
}

#[test]
fn samples_that_are_not_deferred_pass_unchanged() {
    let mut bench = Bench::new();
    let chain = vec![PERF_CONTEXT_USER, 5];
    let what = sampled(chain.clone());
    bench.tell(1, 1, what.clone());
    assert_eq!(bench.out(), [(0, Stitch::NotDeferred)]);
    // Behind a waiting sample, it has to wait for its turn.
    bench.sample(2, 1, C1).tell(3, 1, what);
    assert_eq!(bench.out(), []);
    bench.record(4, 1, C1, &[7]);
    assert_eq!(bench.out(), [(1, stitched(3)), (2, Stitch::NotDeferred)]);
}

#[test]
fn thread_0_is_a_thread_and_thread_minus_1_is_none() {
    let mut bench = Bench::new();
    bench.sample(1, 0, C1).record(2, 0, C1, &[7]);
    assert_eq!(bench.out(), [(0, stitched(1))]);
    bench.sample(3, -1, C2).record(4, -1, C2, &[8]);
    assert_eq!(bench.out(), [(2, missing(MissingReason::NoThread))]);
    assert_eq!(bench.out.counts.orphans, 1);
    assert_eq!(bench.out.counts.duplicates, 0);
    bench.record(5, -1, C2, &[8]);
    assert_eq!((bench.out.counts.orphans, bench.end()), (2, vec![]));
}

#[test]
fn the_sample_says_its_cookie_time_and_thread() {
    let mut bench = Bench::new();
    bench.sample(77, 4, C1).record(78, 4, C1, &[7]);
    let sample = bench.out.ready.pop_front().expect("a sample");
    assert_eq!(
        (sample.key, sample.time, sample.tid, sample.cookie),
        (0, Some(77), 4, Some(C1))
    );
}

#[test]
fn a_record_belongs_to_all_samples_of_its_stay_before_and_after() {
    let mut bench = Bench::new();
    bench.sample(1, 1, C1).sample(2, 1, C1);
    bench.record(3, 1, C1, &[7, 8, 9]);
    bench.sample(4, 1, C1).sample(5, 1, C1);
    let expected = [
        (0, stitched(2)),
        (1, stitched(2)),
        (3, late(2)),
        (4, late(2)),
    ];
    assert_eq!(bench.out(), expected);
    assert_eq!(bench.end(), []);
    assert_eq!(bench.out.counts.orphans, 0);
}

#[test]
fn a_record_that_comes_first_serves_later_samples_and_is_an_orphan_without_any() {
    let mut bench = Bench::new();
    bench.record(1, 1, C1, &[7]).sample(2, 1, C1);
    assert_eq!(bench.out(), [(1, late(0))]);
    bench.record(3, 1, C2, &[7]);
    assert_eq!(bench.out.counts.orphans, 0, "the first was used");
    bench.record(4, 1, C3, &[7]);
    assert_eq!(bench.out.counts.orphans, 1, "the second was not");
    bench.end();
    assert_eq!(bench.out.counts.orphans, 2, "nor the third");
}

#[test]
fn stays_of_a_thread_can_be_answered_in_any_order() {
    let mut bench = Bench::new();
    bench.sample(1, 1, C1).sample(2, 1, C2).sample(3, 1, C3);
    bench.record(4, 1, C2, &[20]);
    bench.record(5, 1, C3, &[30]).record(6, 1, C1, &[10]);
    let expected = [(0, stitched(5)), (1, stitched(3)), (2, stitched(4))];
    assert_eq!(bench.out(), expected);
}

#[test]
fn only_the_newest_stay_keeps_its_record() {
    let mut bench = Bench::new();
    bench.sample(1, 1, C1).sample(2, 1, C2);
    bench.record(3, 1, C1, &[10]).record(4, 1, C2, &[20]);
    assert_eq!(bench.out(), [(0, stitched(2)), (1, stitched(3))]);
    // The old stay's record is dropped, the newest one's is not.
    bench.sample(5, 1, C1).sample(6, 1, C2);
    assert_eq!(
        bench.out(),
        [(4, missing(MissingReason::GivenUp)), (5, late(3))]
    );
    // With another stay, that one becomes an old one.
    bench
        .sample(7, 1, C3)
        .sample(8, 1, C2)
        .record(9, 1, C3, &[30]);
    let expected = [(6, stitched(8)), (7, missing(MissingReason::GivenUp))];
    assert_eq!(bench.out(), expected);
    // A record for a stay that already had one is a duplicate, even if it was dropped.
    assert_eq!(bench.out.counts.duplicates, 0);
    bench.record(10, 1, C2, &[20]);
    assert_eq!(bench.out.counts.duplicates, 1);
    assert_eq!(bench.out.counts.conflicts, 0);
}

#[test]
fn a_second_record_is_a_duplicate_or_a_conflict() {
    let mut bench = Bench::new();
    bench.sample(1, 1, C1).record(2, 1, C1, &[7, 8]);
    bench.record(3, 1, C1, &[7, 8]).sample(4, 1, C1);
    let counts = bench.out.counts;
    assert_eq!((counts.duplicates, counts.conflicts), (1, 0));
    assert_eq!(bench.out(), [(0, stitched(1)), (3, late(1))]);
    bench.record(5, 1, C1, &[9, 9, 9]);
    let counts = bench.out.counts;
    assert_eq!((counts.duplicates, counts.conflicts), (1, 1));
    bench.record(6, 1, C1, &[5]);
    assert_eq!(bench.out.counts.conflicts, 2);
    // A later sample gets the latest frames.
    bench.sample(7, 1, C1);
    let last = bench.out.ready.pop_back().expect("the late sample");
    assert_eq!((last.how, last.chain.last()), (late(5), Some(&5)));
}

#[test]
fn a_record_is_foreign_while_another_thread_waits_for_its_cookie() {
    let mut bench = Bench::new();
    bench.sample(1, 1, C1).sample(2, 1, C1).sample(3, 2, C1);
    let foreign = |bench: &mut Bench, tid| {
        let before = bench.out.counts.foreign;
        bench.record(10, tid, C1, &[7]);
        bench.out.counts.foreign - before
    };
    assert_eq!(foreign(&mut bench, 3), 1, "two threads wait");
    assert_eq!(foreign(&mut bench, 1), 0, "one of them gets it");
    assert_eq!(foreign(&mut bench, 4), 1, "the other one still waits");
    assert_eq!(foreign(&mut bench, 2), 0, "it gets it");
    assert_eq!(foreign(&mut bench, 5), 0, "nothing waits");
    // A stay that ends without a record is no longer waiting.
    bench.sample(20, 6, C2).tell(21, 6, ItemKind::Exit);
    bench.record(22, 7, C2, &[7]);
    assert_eq!(bench.out.counts.foreign, 2);
}

#[test]
fn without_cookies_each_event_has_its_own_records() {
    let mut bench = Bench::new();
    bench.sample_of_event(1, 1, 50).sample_of_event(2, 1, 51);
    bench.sample_of_event(3, 1, 50);
    bench.record_of_event(4, 1, 51, &[7]);
    bench.record_of_event(5, 1, 50, &[8]);
    let expected = [(0, stitched(4)), (1, stitched(3)), (2, stitched(4))];
    assert_eq!(bench.out(), expected);
    // There are no late samples: the next sample requests another record.
    bench.sample_of_event(6, 1, 50);
    assert_eq!(bench.end(), [(5, missing(MissingReason::End))]);
    // No record is foreign, and one without a waiting sample is an orphan.
    bench.record_of_event(7, 1, 52, &[7]);
    assert_eq!((bench.out.counts.foreign, bench.out.counts.orphans), (0, 1));
}

#[test]
fn without_cookies_time_does_not_separate_and_a_loss_does() {
    let mut bench = Bench::new();
    bench.sample_of_event(1, 1, 50);
    bench.record_of_event(1 + 9 * COOKIE_ROUND_NS, 1, 50, &[7]);
    assert_eq!(bench.out(), [(0, stitched(1))]);
    let mut bench = Bench::new();
    bench.sample_of_event(1, 1, 50).lost(Some(2));
    bench.sample_of_event(3, 1, 50);
    bench.record_of_event(4, 1, 50, &[7]);
    let expected = [(0, missing(MissingReason::Lost)), (2, stitched(3))];
    assert_eq!(bench.out(), expected);
    // At the end, any waiting sample might still have got its record.
    let mut bench = Bench::new();
    bench.sample_of_event(1, 1, 50).sample_of_event(2, 1, 51);
    let end = missing(MissingReason::End);
    assert_eq!(bench.end(), [(0, end), (1, end)]);
}

#[test]
fn an_item_without_a_time_happens_now() {
    let mut bench = Bench::new();
    bench.sample(5 * COOKIE_ROUND_NS, 2, C2);
    let what = ItemKind::Record {
        cookie: Some(C1),
        frames: vec![7],
    };
    bench.item(None, 1, 0, what);
    bench.sample(5 * COOKIE_ROUND_NS + 9, 1, C1);
    bench.record(5 * COOKIE_ROUND_NS + 10, 2, C2, &[8]);
    assert_eq!(bench.out(), [(0, stitched(3)), (2, late(1))]);
}
