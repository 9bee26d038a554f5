//! Files built word by word: every field of a sample, every record, ordering, compression.

use crate::common::{Attr, each, file, le, pipe, record};
use quickcheck::quickcheck;
use unwind_sim_perf_data::{
    MmapIdentity, Order, PerfErrorKind, PerfFile, Record, Stop, branch_sample_type, flag,
    read_format, record_type as rt, sample_type as st,
};

/// A sample of `attr` with every field; each word identifies its field.
fn full_sample(group: bool) -> Vec<u8> {
    let mut words = vec![7, 0x1001, 42 << 32 | 41, 1003, 1004, 7, 1006, 3, 1008];
    words.extend(if group {
        vec![2, 500, 400, 11, 7, 1, 12, 8, 2]
    } else {
        vec![11, 500, 400, 7, 1]
    });
    words.extend([3, -512i64 as u64, 0x10, 0x20]);
    let mut body = le(&words);
    body.extend(12u32.to_le_bytes());
    body.extend(b"raw data 12.");
    body.extend(le(&[2, 5, 0xa1, 0xa2, 0xa3, 0xb1, 0xb2, 0xb3, 0xc1, 0xc2]));
    body.extend(le(&[2, 0x66, 0x77, 0x88]));
    body.extend(le(&[16, 0x5150, 0x5251, 8]));
    body.extend(le(&[2001, 2002, 2003]));
    body.extend(le(&[1, 0x99]));
    body.extend(le(&[2004, 2005, 4096, 8192, 8, 0xabcd]));
    body
}

fn full_attr(group: bool) -> Attr {
    let all = (1 << 24) - 1;
    let times = read_format::TOTAL_TIME_ENABLED | read_format::TOTAL_TIME_RUNNING;
    let group = if group { read_format::GROUP } else { 0 };
    Attr {
        sample_type: all,
        read_format: times | read_format::ID | read_format::LOST | group,
        flags: flag::SAMPLE_ID_ALL,
        branch_sample_type: branch_sample_type::HW_INDEX | branch_sample_type::COUNTERS,
        regs_user: 0b111 << 6,
        regs_intr: 1 << 8,
    }
}

fn check_full_sample(group: bool) {
    let data = record(rt::SAMPLE, 0x4002, &full_sample(group));
    let bytes = file(&[(full_attr(group), &[7])], &data);
    let parsed = PerfFile::parse(&bytes).unwrap();
    let raw = parsed.records().next().unwrap().unwrap();
    let s = parsed.sample(&raw).unwrap().unwrap();

    // All fields lie one behind the other, so one wrong size shifts all that follow.
    s.check().unwrap();

    // The fields of a fixed size, each with a number of its own.
    assert_eq!((s.cpumode(), s.is_exact_ip()), (2, true));
    assert_eq!(
        (s.id(), s.ip(), s.pid(), s.tid()),
        (Some(7), Some(0x1001), Some(41), Some(42))
    );
    assert_eq!(
        (s.time(), s.address(), s.stream_id()),
        (Some(1003), Some(1004), Some(1006))
    );
    assert_eq!((s.cpu(), s.period()), (Some(3), Some(1008)));

    // One value, or one for each event of the group.
    let read = s.read_values().unwrap().unwrap();
    assert_eq!(
        (read.time_enabled, read.time_running),
        (Some(500), Some(400))
    );
    let values: Vec<_> = read.values().map(|v| (v.value, v.id, v.lost)).collect();
    let expected = [(11, Some(7), Some(1)), (12, Some(8), Some(2))];
    assert_eq!(values, expected[..if group { 2 } else { 1 }]);

    // From here on each field has a size of its own.
    let chain = s.callchain().unwrap().unwrap();
    assert_eq!(
        chain.words().collect::<Vec<_>>(),
        [-512i64 as u64, 0x10, 0x20]
    );
    assert_eq!(s.raw_data().unwrap(), Some(&b"raw data 12."[..]));
    let branches = s.branch_stack().unwrap().unwrap();
    assert_eq!((branches.hw_index, branches.len()), (Some(5), 2));
    let entries: Vec<_> = branches
        .entries()
        .map(|b| [b.from, b.to, b.flags])
        .collect();
    assert_eq!(entries, [[0xa1, 0xa2, 0xa3], [0xb1, 0xb2, 0xb3]]);
    assert_eq!(branches.counters().collect::<Vec<_>>(), [0xc1, 0xc2]);

    // The stack copy says how many of its bytes were written.
    let (user, stack) = s.user_regs_and_stack().unwrap().unwrap();
    assert_eq!(
        user.iter().collect::<Vec<_>>(),
        [(6, 0x66), (7, 0x77), (8, 0x88)]
    );
    assert_eq!(
        (stack.size, stack.bytes),
        (16, &0x5150u64.to_le_bytes()[..])
    );
    assert_eq!(
        (s.weight().unwrap(), s.data_source().unwrap()),
        (Some(2001), Some(2002))
    );
    assert_eq!(s.transaction().unwrap(), Some(2003));
    assert_eq!(s.intr_regs().unwrap().unwrap().get(8), Some(0x99));
    assert_eq!(
        (s.physical_address().unwrap(), s.cgroup().unwrap()),
        (Some(2004), Some(2005))
    );
    let pages = (s.data_page_size().unwrap(), s.code_page_size().unwrap());
    assert_eq!(pages, (Some(4096), Some(8192)));
    assert_eq!(s.aux_data().unwrap(), Some(&0xabcdu64.to_le_bytes()[..]));
}

#[test]
fn every_field_of_a_sample_is_found() {
    check_full_sample(false);
    check_full_sample(true);
}

#[test]
fn a_sample_cut_anywhere_is_an_error_never_a_wrong_field() {
    for group in [false, true] {
        let whole = full_sample(group);
        for end in 0..whole.len() {
            let bytes = file(
                &[(full_attr(group), &[7])],
                &record(rt::SAMPLE, 2, &whole[..end]),
            );
            let parsed = PerfFile::parse(&bytes).unwrap();
            let raw = parsed.records().next().unwrap().unwrap();
            let checked = parsed
                .sample(&raw)
                .and_then(|sample| sample.unwrap().check());
            let error = checked.expect_err("a field is cut");
            let cut = matches!(
                error.kind,
                PerfErrorKind::Short { .. } | PerfErrorKind::Count { .. }
            );
            assert!(cut, "{end}: {error}");
        }
    }
}

#[test]
fn a_task_without_user_registers_has_no_words_and_no_stack() {
    let attr = Attr {
        sample_type: st::IP | st::REGS_USER | st::STACK_USER | st::WEIGHT,
        regs_user: 0xff,
        ..Attr::default()
    };
    let bytes = file(&[(attr, &[])], &record(rt::SAMPLE, 1, &le(&[9, 0, 0, 77])));
    each(&bytes, Order::File, |event| {
        let Record::Sample(sample) = event.record else {
            panic!("{event:?}")
        };
        let (user, stack) = sample.user_regs_and_stack().unwrap().unwrap();
        assert_eq!((user.mask, user.get(0), stack.bytes.len()), (0, None, 0));
        assert_eq!(sample.weight().unwrap(), Some(77));
    });
}

#[test]
fn records_have_their_meaning_and_their_trailer() {
    let attr = Attr {
        sample_type: st::TID | st::TIME | st::IDENTIFIER,
        flags: flag::SAMPLE_ID_ALL,
        ..Attr::default()
    };

    // Process and thread, time and ID: the same for all records.
    let trailer = le(&[42 << 32 | 41, 5000, 7]);
    let make = |kind, misc, body: &[u8]| record(kind, misc, &[body, &trailer].concat());
    let place = le(&[42 << 32 | 41, 0x400000, 0x1000, 0x2000]);
    let path = b"/bin/x\0\0";

    // After the place: device, inode, protection and flags, and the path.
    let inode = [&place[..], &le(&[3 << 32 | 8, 99, 1, 2 << 32 | 5]), path].concat();

    // In the same 24 bytes: a length, padding, and an ID of four bytes.
    let mut build_id = [&place[..], &[4, 0, 0, 0, 0xde, 0xad, 0xbe, 0xef], &[0; 16]].concat();
    build_id.extend([le(&[2 << 32 | 5]), path.to_vec()].concat());
    let task = le(&[40 << 32 | 41, 43 << 32 | 42, 4999]);
    let data = [
        make(rt::MMAP, 2, &[&place[..], path].concat()),
        make(rt::MMAP2, 2, &inode),
        make(rt::MMAP2, 2 | 1 << 14, &build_id),
        make(rt::COMM, 1 << 13, &[&place[..8], b"name\0\0\0\0"].concat()),
        make(rt::FORK, 0, &task),
        make(rt::LOST, 0, &le(&[7, 3])),
        make(rt::SWITCH_CPU_WIDE, 3 << 13, &le(&[52 << 32 | 51])),
        make(rt::NAMESPACES, 0, &le(&[42 << 32 | 41, 2, 1, 2, 3, 4])),
        make(
            rt::KSYMBOL,
            0,
            &[le(&[0x9000, 1 << 32 | 64]), path.to_vec()].concat(),
        ),
        make(
            rt::TEXT_POKE,
            0,
            &[le(&[0x8000]), vec![2, 0, 2, 0, 1, 2, 3, 4]].concat(),
        ),
        make(
            rt::CALLCHAIN_DEFERRED,
            2,
            &le(&[0x3_0000_0001, 2, 0x10, 0x20]),
        ),
        make(999, 0, &[]),
    ]
    .concat();

    // In both modes, since they share nothing but the records.
    for bytes in [file(&[(attr, &[7])], &data), pipe(&[(attr, &[7])], &data)] {
        let mut seen = Vec::new();
        // The record of an unknown type is kept, those of the tool are not.
        let summary = each(&bytes, Order::File, |event| {
            if event.raw.kind < rt::USER_TYPE_START || event.raw.kind == 999 {
                seen.push(format!("{:?}", event.record));
            }
            if event.raw.kind < rt::USER_TYPE_START {
                assert_eq!((event.id().pid(), event.id().tid()), (Some(41), Some(42)));
                assert_eq!((event.time(), event.id().id()), (Some(5000), Some(7)));
            }

            // All three have one place, and differ in what identifies the file.
            if let Record::Mmap(m) = event.record {
                assert_eq!(
                    (m.pid, m.tid, m.address, m.length),
                    (41, 42, 0x400000, 0x1000)
                );
                assert_eq!((m.file_offset, m.path), (0x2000, &b"/bin/x"[..]));
                let flags = if m.identity == MmapIdentity::Path {
                    (0, 0)
                } else {
                    (5, 2)
                };
                assert_eq!((m.protection, m.flags), flags);
            }
        });
        assert_eq!((summary.skipped, summary.stop), (0, Stop::End));

        // The oldest form has only the path.
        let identity = |index: usize| seen[index].split("identity: ").nth(1).unwrap();
        assert!(identity(0).starts_with("Path"));
        assert!(identity(1).starts_with("Inode { major: 8, minor: 3, inode: 99, generation: 1 }"));
        assert!(identity(2).starts_with("BuildId([222, 173, 190, 239])"));
        let rest = [
            "Comm(Comm { pid: 41, tid: 42, exec: true, name: [110, 97, 109, 101] })",
            "Fork(Task { pid: 41, ppid: 40, tid: 42, ptid: 43, time: 4999 })",
            "Lost { id: 7, lost: 3 }",
            "SwitchCpuWide { out: true, preempted: true, other_pid: 51, other_tid: 52 }",
        ];
        assert_eq!(seen[3..7], rest);
        assert!(seen[8].starts_with("Ksymbol(Ksymbol { address: 36864, length: 64, kind: 1"));
        assert_eq!(
            seen[9],
            "TextPoke { address: 32768, old: [1, 2], new: [3, 4] }"
        );
        assert!(seen[10].starts_with("CallchainDeferred { cookie: 12884901889, chain: [\"0x10\""));
        assert_eq!(seen[11], "Other");
    }
}

#[test]
fn the_id_tells_which_event_a_sample_belongs_to() {
    let ip_only = Attr {
        sample_type: st::IDENTIFIER | st::IP,
        ..Attr::default()
    };
    let with_time = Attr {
        sample_type: st::IDENTIFIER | st::TIME | st::CPU,
        ..Attr::default()
    };

    // The ID comes first in every sample, whatever its event has besides.
    let data = [
        record(rt::SAMPLE, 2, &le(&[21, 100, 6])),
        record(rt::SAMPLE, 2, &le(&[10, 0x400])),
        record(rt::SAMPLE, 2, &le(&[99, 0x400])),
    ]
    .concat();
    let bytes = file(&[(ip_only, &[10, 11]), (with_time, &[20, 21])], &data);
    let mut seen = Vec::new();
    let summary = each(&bytes, Order::File, |event| {
        let Record::Sample(sample) = event.record else {
            panic!("{event:?}")
        };
        seen.push((sample.ip(), sample.time(), sample.cpu()));
    });
    assert_eq!(
        seen,
        [(None, Some(100), Some(6)), (Some(0x400), None, None)]
    );

    // An ID of no event: the sample cannot be decoded.
    assert_eq!(summary.skipped, 1);
    assert_eq!(
        summary.first_skipped.unwrap().kind,
        PerfErrorKind::UnknownId(99)
    );
}

/// A sample with only a time and a serial number.
fn timed(time: u64, serial: u64) -> Vec<u8> {
    record(rt::SAMPLE, 2, &le(&[time, serial]))
}

fn timed_attr() -> Attr {
    Attr {
        sample_type: st::TIME | st::ADDR,
        ..Attr::default()
    }
}

/// The (time, serial number) of the samples in order of delivery.
fn order_of(bytes: &[u8], order: Order) -> (Vec<(u64, u64)>, u64) {
    let mut seen = Vec::new();
    let summary = each(bytes, order, |event| {
        if let Record::Sample(sample) = event.record {
            seen.push((sample.time().unwrap(), sample.address().unwrap()));
        }
    });
    assert_eq!((summary.stop, summary.skipped), (Stop::End, 0));
    (seen, summary.late)
}

/// A minimal model of perf's ordered events: at the end of a round, deliver everything up to the
/// latest time of the previous round.
fn model(steps: &[Option<u64>]) -> Vec<(u64, u64)> {
    let (mut queue, mut out): (Vec<(u64, u64)>, _) = (Vec::new(), Vec::new());
    let (mut latest, mut limit) = (0, 0);
    for (serial, step) in (0..).zip(steps) {
        match step {
            Some(0) => out.push((0, serial)),
            Some(time) => {
                latest = latest.max(*time);
                let after = queue.iter().take_while(|entry| entry.0 <= *time).count();
                queue.insert(after, (*time, serial));
            }
            None => {
                let due = queue.iter().take_while(|entry| entry.0 <= limit).count();
                out.extend(queue.drain(..due));
                limit = latest;
            }
        }
    }
    out.extend(queue);
    out
}

fn steps_to_data(steps: &[Option<u64>]) -> Vec<u8> {
    let step_to_record = |(serial, step): (u64, &Option<u64>)| match step {
        Some(time) => timed(*time, serial),
        None => record(rt::FINISHED_ROUND, 0, &[]),
    };
    (0..).zip(steps).flat_map(step_to_record).collect()
}

/// Compresses as perf does: one stream, flushed after each piece, records split anywhere.
fn compressed(data: &[u8], pieces: &[u8], second_kind: bool) -> Vec<u8> {
    use std::io::Write;
    let mut out = Vec::new();
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    let mut rest = data;
    let mut pieces = pieces.iter().cycle();
    while !rest.is_empty() {
        let piece = usize::from(*pieces.next().unwrap_or(&0)) + 1;
        let (now, later) = rest.split_at(piece.min(rest.len()));
        encoder.write_all(now).unwrap();
        encoder.flush().unwrap();
        rest = later;
        let packed = std::mem::take(encoder.get_mut());
        out.extend(if second_kind {
            let mut body = le(&[packed.len() as u64]);
            body.extend(&packed);
            body.resize(body.len().next_multiple_of(8), 0xee);
            record(rt::COMPRESSED2, 0, &body)
        } else {
            record(rt::COMPRESSED, 0, &packed)
        });
    }
    out
}

quickcheck! {
    fn time_order_is_that_of_perfs_ordered_events(steps: Vec<Option<u8>>) -> bool {
        let steps: Vec<_> = steps.into_iter().map(|step| step.map(u64::from)).collect();
        let bytes = file(&[(timed_attr(), &[])], &steps_to_data(&steps));
        order_of(&bytes, Order::Time).0 == model(&steps)
    }

    fn rings_drained_in_rounds_come_out_sorted(rounds: Vec<(Vec<u8>, Vec<u8>)>) -> bool {
        // Each round drains two rings, one after the other. Times ascend in a ring, and all of a
        // round are later than all of the round before the previous one.
        let mut steps = Vec::new();
        for (round, rings) in (0u64..).zip(&rounds) {
            for ring in [&rings.0, &rings.1] {
                let mut times: Vec<_> =
                    ring.iter().map(|t| Some(1 + 200 * round + u64::from(*t))).collect();
                times.sort();
                steps.extend(times);
            }
            steps.push(None);
        }
        let bytes = file(&[(timed_attr(), &[])], &steps_to_data(&steps));
        let (seen, late) = order_of(&bytes, Order::Time);
        seen.is_sorted() && late == 0 && seen.len() == steps.iter().flatten().count()
    }

    fn compressed_is_as_uncompressed(steps: Vec<Option<u16>>, pieces: Vec<u8>, second: bool) -> bool {
        let steps: Vec<_> = steps.into_iter().map(|step| step.map(u64::from)).collect();
        let data = steps_to_data(&steps);
        let plain = file(&[(timed_attr(), &[])], &data);
        let packed = file(&[(timed_attr(), &[])], &compressed(&data, &pieces, second));
        [Order::File, Order::Time]
            .into_iter()
            .all(|order| order_of(&plain, order) == order_of(&packed, order))
    }

    fn chunks_cover_the_recording(steps: Vec<Option<u16>>, size: u8) -> bool {
        let steps: Vec<_> = steps.into_iter().map(|step| step.map(u64::from)).collect();
        let bytes = file(&[(timed_attr(), &[])], &steps_to_data(&steps));
        let parsed = PerfFile::parse(&bytes).unwrap();
        let chunks: Vec<_> = parsed.chunks(size.into()).map(Result::unwrap).collect();
        let whole: Vec<_> = parsed.records().map(Result::unwrap).collect();
        let pieces: Vec<_> = chunks
            .iter()
            .flat_map(|chunk| parsed.records_in(chunk.range.clone()).map(Result::unwrap))
            .collect();
        let counted: u64 = chunks.iter().map(|chunk| chunk.records).sum();
        let found = whole.iter().all(|raw| parsed.record_at(raw.offset) == Ok(*raw));
        whole == pieces && counted == whole.len() as u64 && found
    }
}

#[test]
fn bytes_that_follow_a_record_are_stepped_over() {
    // AUX data, and tracepoint formats in pipe mode, are not included in the record's own size.
    let data = [
        record(rt::AUXTRACE, 0, &le(&[24, 0, 0, 0, 0])),
        vec![0; 24],
        record(rt::HEADER_TRACING_DATA, 0, &13u32.to_le_bytes()),
        vec![0; 16],
        timed(5, 1),
    ]
    .concat();
    let (seen, _) = order_of(&pipe(&[(timed_attr(), &[])], &data), Order::Time);
    assert_eq!(seen, [(5, 1)]);

    // A size that leads out of the file is an error of its record.
    let bytes = file(
        &[(timed_attr(), &[])],
        &record(rt::AUXTRACE, 0, &le(&[u64::MAX])),
    );
    let parsed = PerfFile::parse(&bytes).unwrap();
    let error = parsed.records().next().unwrap().unwrap_err();
    assert_eq!(
        error.kind,
        PerfErrorKind::RecordPastEnd {
            size: u64::MAX,
            left: 16
        }
    );
}

#[test]
fn build_ids_of_a_pipe_are_records() {
    let mut body = 7u32.to_le_bytes().to_vec();
    body.extend([0xab; 20]);
    body.extend([4, 0, 0, 0]);
    body.extend(b"/lib/y\0\0");
    let data = [timed(5, 1), record(rt::HEADER_BUILD_ID, 1 << 15 | 1, &body)].concat();
    let bytes = pipe(&[(timed_attr(), &[])], &data);
    let ids: Vec<_> = PerfFile::parse(&bytes)
        .unwrap()
        .build_ids()
        .map(Result::unwrap)
        .collect();
    assert_eq!((ids.len(), ids[0].pid, ids[0].kernel), (1, 7, true));
    assert_eq!((ids[0].id, ids[0].path), (&[0xab; 4][..], &b"/lib/y"[..]));
}

#[test]
fn a_taker_that_breaks_is_not_called_again() {
    for order in [Order::File, Order::Time] {
        let bytes = file(
            &[(timed_attr(), &[])],
            &steps_to_data(&[Some(3), Some(2), Some(1)]),
        );
        let parsed = PerfFile::parse(&bytes).unwrap();
        let mut calls = 0;
        let summary = parsed.for_each(order, |_| {
            calls += 1;
            std::ops::ControlFlow::Break(())
        });
        assert_eq!((calls, summary.events, summary.stop), (1, 1, Stop::Asked));
    }
}
