//! Stitching the cases of `corpus/perfdata/stitch`: perf's method is compared with the output of
//! perf 7.2, our own with the truth stated by hand.

use std::fmt::Write as _;
use std::ops::ControlFlow;

use crate::common::{Attr, file, le, record, recording};
use unwind_sim_perf_data::PerfFile;
use unwind_sim_perf_data::callchain::{PERF_CONTEXT_USER, is_marker};
use unwind_sim_perf_data::stitch::{
    Counts, Item, ItemKind, Judgement, MissingReason, Mode, Stitch, Stitched, Stitcher, Tally,
    items, judge, stitch,
};
use unwind_sim_perf_data::{flag, record_type as rt, sample_type as st};

/// The items of a recording of the corpus.
fn items_of(name: &str) -> Vec<Item> {
    items_in(&recording(&format!("{name}.data")))
}

fn items_in(bytes: &[u8]) -> Vec<Item> {
    let file = PerfFile::parse(bytes).unwrap();
    let mut out = Vec::new();
    items(&file, |item| {
        out.push(item);
        ControlFlow::Continue(())
    });
    out
}

/// The lines of `NAME.perf-7.2.txt`.
fn text(samples: &[Stitched]) -> String {
    let mut out = String::new();
    for sample in samples {
        let (tid, time) = (sample.tid, sample.time.unwrap());
        write!(out, "sample {tid} {time}:").unwrap();
        let frames: Vec<_> = sample.chain.iter().filter(|&&w| !is_marker(w)).collect();
        for frame in frames {
            write!(out, " {frame:x}").unwrap();
        }
        if sample.how == Stitch::Missing(MissingReason::End) {
            out.push_str("(cookie)");
        }
        out.push('\n');
    }
    out
}

/// Compares perf's method with the output of perf.
fn check_perf(name: &str) -> Vec<Stitched> {
    let expected = std::fs::read_to_string(crate::common::corpus(&format!("{name}.perf-7.2.txt")));
    let expected = expected.unwrap_or_else(|error| panic!("{name}: {error}"));
    let (samples, counts) = stitch(Mode::Perf72, items_of(name));
    assert_eq!(text(&samples), expected, "{name}");
    assert_eq!(counts.samples, samples.len() as u64);
    samples
}

const U1: &[u64] = &[0x401000, 0x401100, 0x401200];
const U2: &[u64] = &[0x402000, 0x402100];
const U3: &[u64] = &[0x403000];

/// Compares both methods: perf's with perf's text; our own with the times of the samples, the
/// origin of their user frames, and these frames.
fn check(name: &str, expected: &[(u64, &str, &[u64])]) -> (Counts, Tally) {
    let name = format!("stitch/{name}");
    let perf = check_perf(&name);
    let (own, counts) = stitch(Mode::Own, items_of(&name));
    let found: Vec<(u64, &str, &[u64])> = own
        .iter()
        .map(|sample| {
            let user = sample.chain.iter().position(|&w| w == PERF_CONTEXT_USER);
            let frames = user.map_or(&[][..], |at| &sample.chain[at + 1..]);
            (sample.time.unwrap(), sample.how.as_str(), frames)
        })
        .collect();
    assert_eq!(found, expected, "{name}");
    assert_eq!(counts.out_of_order, 0, "{name}");
    // Neither cookie nor marker is left.
    let left = |s: &Stitched| s.cookie.is_some_and(|cookie| s.chain.contains(&cookie));
    assert!(!own.iter().any(left), "{name}");
    (counts, Tally::of(&judge(&own, &perf)))
}

fn judged(tally: &Tally, judgement: Judgement) -> u64 {
    tally.other.get(&judgement).copied().unwrap_or(0)
}

#[test]
fn r000_2_two_samples_of_one_stay_share_the_record() {
    let expected = [(1000, "stitched", U1), (2000, "stitched", U1)];
    let (counts, tally) = check("A-two-samples-one-record", &expected);
    assert_eq!((counts.records, counts.orphans), (1, 0));
    assert_eq!(judged(&tally, Judgement::Right), 2);
}

#[test]
fn r000_2_a_sample_after_the_record_gets_it_too() {
    let expected = [
        (1000, "stitched", U1),
        (3000, "late", U1),
        (4000, "stitched", U2),
    ];
    let (_, tally) = check("B-late-sample", &expected);
    // Defect D1 of perf 7.2: the cookie is displayed as a frame.
    assert_eq!((tally.late, judged(&tally, Judgement::Lacking)), (1, 1));
}

#[test]
fn r000_5_threads_do_not_mix() {
    let expected = [(1000, "stitched", U1), (1500, "stitched", U2)];
    check("C-two-tids", &expected);
    let expected = [(1000, "stitched", U1)];
    let (counts, _) = check("M-cookie-of-another-thread", &expected);
    assert_eq!((counts.foreign, counts.orphans), (1, 1));
}

#[test]
fn r000_3_samples_are_held_back_until_the_record_comes() {
    let name = "stitch/J-delivery-order";
    let expected = [(1000, "stitched", U1), (1500, "not-deferred", U2)];
    check("J-delivery-order", &expected);
    // Defect D5 of perf 7.2: samples that need not wait come first.
    let (_, counts) = stitch(Mode::Perf72, items_of(name));
    assert_eq!(counts.out_of_order, 1);
}

#[test]
fn r001_4_without_cookies_a_lost_record_brings_the_wrong_stack() {
    let expected = [(1000, "lost", &[][..]), (2000, "stitched", U2)];
    let (counts, tally) = check("D-lost-record", &expected);
    // Defect D3 of perf 7.2.
    assert_eq!((counts.lost, judged(&tally, Judgement::Bogus)), (1, 1));

    let name = "stitch/D-lost-record";
    let (own, _) = stitch(Mode::Own, items_of(name));
    let (rfc, _) = stitch(Mode::Rfc2023, items_of(name));
    assert!(rfc.iter().all(|sample| sample.chain.ends_with(U2)));
    assert_eq!(
        judged(&Tally::of(&judge(&own, &rfc)), Judgement::Wrong),
        1,
        "the proposal of 2023 gives the first sample the second one's stack"
    );
}

#[test]
fn several_cookies_of_a_thread_can_be_pending() {
    let expected = [(1000, "stitched", U1), (2000, "stitched", U2)];
    let (_, tally) = check("E-two-cookies-pending", &expected);
    // Defect D2 of perf 7.2: the first record removes both from the list.
    assert_eq!(judged(&tally, Judgement::Lacking), 1);

    let expected = [(1000, "stitched", U1), (3000, "stitched", U2)];
    let (_, tally) = check("R-record-of-a-stay-before", &expected);
    assert_eq!(judged(&tally, Judgement::Lacking), 1);
}

#[test]
fn the_data_can_end_before_the_record() {
    let expected = [(1000, "stitched", U1), (3000, "end", &[][..])];
    let (_, tally) = check("F-no-record-at-end", &expected);
    // Defect D4 of perf 7.2.
    assert_eq!(judged(&tally, Judgement::Bogus), 1);
}

#[test]
fn a_record_can_be_empty_or_twice_there_or_alone() {
    let (counts, _) = check("G-empty-record", &[(1000, "empty", &[])]);
    assert_eq!(counts.empty, 1);
    let expected = [(1000, "stitched", U1), (3000, "stitched", U2)];
    let (counts, _) = check("H-duplicate-record", &expected);
    assert_eq!((counts.duplicates, counts.conflicts), (2, 0));
    let (counts, _) = check("L-orphan-record", &[(2000, "stitched", U2)]);
    assert_eq!((counts.orphans, counts.foreign), (1, 0));
}

#[test]
fn r000_1_a_sample_in_user_space_is_deferred_too() {
    check("I-user-mode-sample", &[(1000, "stitched", U1)]);
}

#[test]
fn time_decides_not_the_place_in_the_file() {
    let expected = [(1000, "stitched", U1), (2000, "stitched", U1)];
    check("K-out-of-file-order", &expected);
}

#[test]
fn inside_execve_the_record_tells_of_the_new_program() {
    let expected = [
        (1000, "exec", &[][..]),
        (2500, "exec", &[]),
        (5000, "stitched", U3),
    ];
    let (_, tally) = check("N-exec", &expected);
    // Defect D8: the kernel writes the new program's stack; perf 7.2 assigns it to the old program.
    assert_eq!(judged(&tally, Judgement::Wrong), 2);
    // After the record, the stack of the new program is the thread's own.
    let expected = [(2000, "exec", &[][..]), (5000, "late", U2)];
    check("O-exec-fresh-cookie", &expected);
}

#[test]
fn a_thread_can_end_and_its_number_be_used_again() {
    let expected = [(1000, "exited", &[][..]), (3000, "stitched", U2)];
    check("P-thread-exit", &expected);
    let expected = [(1000, "exited", &[][..]), (4000, "stitched", U2)];
    let (_, tally) = check("Q-tid-reuse", &expected);
    assert_eq!(judged(&tally, Judgement::Wrong), 1);
}

#[test]
fn a_cookie_that_came_round_joins_nothing() {
    let expected = [(1000, "lost", &[][..]), (300_000_002_000, "ambiguous", &[])];
    let (_, tally) = check("S-cookie-came-round", &expected);
    // perf assigns both to the same stay, although they are five minutes apart.
    assert_eq!(judged(&tally, Judgement::Wrong), 2);
}

/// [`check`] for a recording without a text from perf: uses our implementation of perf's method.
fn check_own(name: &str, expected: &[(u64, &str, &[u64])]) -> Tally {
    let name = format!("stitch/{name}");
    let (own, _) = stitch(Mode::Own, items_of(&name));
    let (perf, _) = stitch(Mode::Perf72, items_of(&name));
    let found: Vec<(u64, &str, &[u64])> = own
        .iter()
        .map(|sample| {
            let user = sample.chain.iter().position(|&w| w == PERF_CONTEXT_USER);
            let frames = user.map_or(&[][..], |at| &sample.chain[at + 1..]);
            (sample.time.unwrap(), sample.how.as_str(), frames)
        })
        .collect();
    assert_eq!(found, expected, "{name}");
    Tally::of(&judge(&own, &perf))
}

#[test]
fn after_execve_the_record_is_the_samples_own() {
    let expected = [
        (1000, "exec", &[][..]),
        (2500, "exec", &[]),
        (3500, "exec", &[]),
        (4000, "stitched", U2),
        (4500, "stitched", U2),
    ];
    let tally = check_own("T-execve-returned", &expected);
    assert_eq!(judged(&tally, Judgement::Wrong), 3);
    assert_eq!(judged(&tally, Judgement::Right), 2);
}

#[test]
fn a_later_record_proves_nothing() {
    let tally = check_own("U-stepped-over", &[(1000, "moved", U2)]);
    assert_eq!(judged(&tally, Judgement::Right), 0);
    assert_eq!((tally.moved, judged(&tally, Judgement::Unproven)), (1, 1));
}

#[test]
fn recordings_of_linux_7_2_in_perfs_way() {
    for (name, tally) in [
        ("poll-syscalls-defer", [10, 0, 0, 0, 0]),
        ("threads4-switch-defer", [136, 1, 11, 2, 0]),
    ] {
        let perf = check_perf(name);
        let (own, counts) = stitch(Mode::Own, items_of(name));
        assert_eq!((counts.out_of_order, counts.conflicts), (0, 0));
        let judged_ = Tally::of(&judge(&own, &perf));
        let found = Judgement::ALL.map(|judgement| judged(&judged_, judgement));
        assert_eq!(found, tally, "{name}: {judged_:?}");
    }
}

/// An event whose samples have an address, thread, time and callchain, and whose other records have
/// a sample ID trailer.
fn event(flags: u64) -> Attr {
    Attr {
        sample_type: st::IDENTIFIER | st::IP | st::TID | st::TIME | st::CALLCHAIN,
        flags: flag::SAMPLE_ID_ALL | flags,
        ..Attr::default()
    }
}

#[test]
fn samples_say_whether_their_event_defers_and_where_they_hit_user_space() {
    let sample = |misc, id, time| {
        let body = le(&[id, 0x1000 + time, 42 << 32 | 41, time, 1, 5]);
        record(rt::SAMPLE, misc, &body)
    };
    // Another flag alone does not defer; misc 1 is the kernel, 2 is user space.
    let defers = event(flag::DEFER_CALLCHAIN);
    let does_not = event(1);
    let data = [sample(2, 7, 1), sample(1, 7, 2), sample(2, 8, 3)].concat();
    let found = items_in(&file(&[(defers, &[7]), (does_not, &[8])], &data));
    let expected = [
        (7, true, Some(0x1001)),
        (7, true, None),
        (8, false, Some(0x1003)),
    ];
    for (item, (event, defer, ip)) in found.iter().zip(expected) {
        let chain = vec![5];
        assert_eq!(item.what, ItemKind::Sample { defer, chain, ip });
        assert_eq!((item.tid, item.event), (42, event));
    }
    assert_eq!(found.len(), 3);
}

#[test]
fn records_of_threads_are_of_the_thread_that_they_tell_of() {
    // The trailer belongs to the acting thread, 99.
    let made = |kind, misc, time, body: &[u8]| {
        let trailer = le(&[99 << 32 | 98, time, 7]);
        record(kind, misc, &[body, &trailer].concat())
    };
    let task = le(&[40 << 32 | 41, 43 << 32 | 42, 4999]);
    let name = [&le(&[42 << 32 | 41])[..], b"name\0\0\0\0"].concat();
    let place = le(&[42 << 32 | 41, 0x40_0000, 0x1000, 0]);
    let mapped = |path: &[u8]| [&place[..], path].concat();

    // Names that are not an execve's and mappings of other files say nothing.
    let data = [
        made(rt::FORK, 0, 1, &task),
        made(rt::EXIT, 0, 2, &task),
        made(rt::COMM, 1 << 13, 3, &name),
        made(rt::COMM, 0, 4, &name),
        made(rt::MMAP, 2, 5, &mapped(b"[vdso]\0\0")),
        made(rt::MMAP, 2, 6, &mapped(b"/bin/x\0\0")),
        made(rt::LOST, 0, 7, &le(&[7, 3])),
        made(rt::CALLCHAIN_DEFERRED, 2, 8, &le(&[0, 1, 0x10])),
        made(rt::CALLCHAIN_DEFERRED, 2, 9, &le(&[1, 1, 0x10])),
    ];

    // Records of a thread take its number from the body, all others from the trailer.
    let found = items_in(&file(&[(event(0), &[7])], &data.concat()));
    let found: Vec<_> = found
        .into_iter()
        .map(|item| (item.time.unwrap(), item.tid, item.what))
        .collect();
    let frames = vec![0x10];
    let record = |cookie| ItemKind::Record {
        cookie,
        frames: frames.clone(),
    };
    let expected = [
        (1, 42, ItemKind::Fork),
        (2, 42, ItemKind::Exit),
        (3, 42, ItemKind::Exec),
        (5, 42, ItemKind::Vdso),
        (7, 99, ItemKind::Lost { count: 3 }),
        (8, 99, record(None)),
        (9, 99, record(Some(1))),
    ];
    assert_eq!(found, expected);
}

#[test]
fn an_item_without_a_thread_belongs_to_none() {
    let attr = Attr {
        sample_type: st::IP | st::CALLCHAIN,
        ..Attr::default()
    };
    let data = record(rt::SAMPLE, 2, &le(&[0x1000, 1, 5]));
    let found = items_in(&file(&[(attr, &[])], &data));
    assert_eq!((found.len(), found[0].tid, found[0].event), (1, -1, 0));
}

#[test]
fn records_that_no_event_asks_for_are_not_awaited() {
    let chain = [0xdead, (-640i64) as u64, 7];
    let sample = || Item {
        key: 0,
        time: Some(1),
        tid: 5,
        event: 0,
        what: ItemKind::Sample {
            defer: true,
            chain: chain.to_vec(),
            ip: None,
        },
    };

    // The reason of a sample whose event has these flags.
    let missing = |flags: u64, with_record: bool| {
        let attr = Attr {
            sample_type: st::IP | st::CALLCHAIN,
            flags,
            ..Attr::default()
        };
        let bytes = file(&[(attr, &[])], &[]);
        let mut stitcher = Stitcher::new(Mode::Own);
        stitcher.events(PerfFile::parse(&bytes).unwrap().attrs());
        stitcher.push(sample());

        // A record of another cookie, which shows that the kernel writes some.
        if with_record {
            let what = ItemKind::Record {
                cookie: Some(99),
                frames: vec![1],
            };
            stitcher.push(Item {
                key: 1,
                what,
                ..sample()
            });
        }
        stitcher.finish();
        stitcher.pop().expect("the sample").how
    };
    let asked = flag::DEFER_CALLCHAIN | flag::DEFER_OUTPUT;
    assert_eq!(missing(asked, false), Stitch::Missing(MissingReason::End));
    assert_eq!(
        missing(flag::DEFER_CALLCHAIN, false),
        Stitch::Missing(MissingReason::NotAsked)
    );
    // Whatever the attributes say, records are written.
    assert_ne!(
        missing(flag::DEFER_CALLCHAIN, true),
        Stitch::Missing(MissingReason::NotAsked)
    );
}
