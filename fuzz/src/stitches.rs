//! Streams of samples and records, joined in every mode.

use crate::input::Input;
use std::collections::HashMap;
use unwind_sim_perf_data::callchain::{
    PERF_CONTEXT_KERNEL, PERF_CONTEXT_USER, PERF_CONTEXT_USER_DEFERRED,
};
use unwind_sim_perf_data::stitch::{COOKIE_ROUND_NS, Item, ItemKind, Mode, Stitched, Stitcher};

/// Maximum bytes that our own mode may hold back.
const HELD_BYTES_MAX: usize = 4096;

/// A stream, item by item: kind, thread and cookie (8 bits each), and the time since the last item
/// (8 bits; the largest value means that cookies wrap around).
fn items(data: &[u8]) -> Vec<Item> {
    let mut input = Input::new(data);
    let mut out = Vec::new();
    let mut time = 1u64;
    while !input.is_empty() {
        let (what, tid, cookie) = (input.u8(), input.u8(), u64::from(input.u8() % 6));

        // Mostly a little later; sometimes so late that cookies repeat, or earlier, as on another
        // CPU.
        time = match input.u8() {
            0xff => time.saturating_add(COOKIE_ROUND_NS),
            0xfe => time.saturating_sub(3),
            step => time + u64::from(step),
        };

        let key = out.len() as u64;

        // Few different cookies, so that samples and records meet.
        let cookie = (cookie != 0).then_some(cookie << 32 | 1);

        let what = match what % 16 {
            0..6 => {
                let mut chain = vec![PERF_CONTEXT_KERNEL, key, PERF_CONTEXT_USER_DEFERRED];
                chain.extend(cookie);

                let defer = what & 0x80 == 0;
                ItemKind::Sample {
                    defer,
                    chain,
                    ip: (key & 1 != 0).then_some(key << 8),
                }
            }
            6..10 => ItemKind::Record {
                cookie,
                frames: (0..u64::from(what >> 6)).map(|n| key << 8 | n).collect(),
            },
            10 => ItemKind::Fork,
            11 => ItemKind::Exit,
            12 => ItemKind::Exec,
            13 => ItemKind::Vdso,
            14 => ItemKind::Lost { count: 1 },
            // A sample that has a user frame already, and yet defers.
            _ => ItemKind::Sample {
                defer: true,
                chain: vec![PERF_CONTEXT_KERNEL, key, PERF_CONTEXT_USER, 7],
                ip: None,
            },
        };

        out.push(Item {
            key,
            // Few threads, also negative numbers, and items without a time.
            time: (tid & 0x40 == 0).then_some(time),
            tid: i32::from(tid % 4) - i32::from(tid & 0x20 != 0),
            event: u64::from(tid >> 7),
            what,
        });
    }
    out
}

/// A stream of samples and records: in every mode, each sample comes out once, with frames only
/// from a record of its own thread and cookie, and little is held back.
pub fn stitch(data: &[u8]) {
    let items = items(data);
    let records: HashMap<u64, &Item> = items.iter().map(|item| (item.key, item)).collect();

    for mode in Mode::ALL {
        let mut stitcher = match mode {
            Mode::Own => Stitcher::own_within(HELD_BYTES_MAX),
            other => Stitcher::new(other),
        };
        let mut out = Vec::new();
        let mut pushed = 0;
        for item in items.iter().cloned() {
            pushed += usize::from(matches!(item.what, ItemKind::Sample { .. }));
            stitcher.push(item);
            out.extend(std::iter::from_fn(|| stitcher.pop()));

            // All that can come out has been taken, so the rest is what is held back.
            let held = pushed - out.len();

            // Only our own mode promises a bound; the others are those of perf and of the RFC.
            assert!(mode != Mode::Own || held * size_of::<Stitched>() <= HELD_BYTES_MAX);
        }

        // The rest comes without records, but it comes.
        stitcher.finish();
        out.extend(std::iter::from_fn(|| stitcher.pop()));
        assert_eq!(stitcher.counts().samples, pushed as u64);

        // Each once: neither lost nor twice.
        let mut keys: Vec<u64> = out.iter().map(|sample| sample.key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!((keys.len(), out.len()), (pushed, pushed), "{mode:?}");

        for sample in &out {
            check(mode, sample, &records);
        }
    }
}

fn check(mode: Mode, sample: &Stitched, records: &HashMap<u64, &Item>) {
    assert!(sample.chain.starts_with(&[PERF_CONTEXT_KERNEL, sample.key]));

    // Nothing more is known of a sample that was joined with no record.
    let Some(record) = sample.how.record() else {
        return;
    };
    let item = records[&record];
    let ItemKind::Record { cookie, frames } = &item.what else {
        panic!("{record} is not a record");
    };
    assert_eq!(item.tid, sample.tid);
    assert!(mode == Mode::Rfc2023 || *cookie == sample.cookie);
    assert!(sample.chain.ends_with(frames));
    let left = sample.chain.contains(&PERF_CONTEXT_USER_DEFERRED);
    assert!(mode != Mode::Own || !left);
}
