//! Malformed files: a clear error or a counted skip, never a panic, a hang or unbounded memory.

use std::io::Read as _;

use crate::common::{Attr, file, le, pipe, record, recording};
use unwind_sim_perf_data::{
    Order, PerfErrorKind, PerfFile, Record, Stop, Summary, record_type as rt, sample_type as st,
};

/// Reads everything; returns the number of events.
fn read_all(bytes: &[u8]) -> u64 {
    let Ok(file) = PerfFile::parse(bytes) else {
        return 0;
    };

    // Whatever is read from the features may fail, but must not panic.
    let features = file.features();
    for number in features.numbers() {
        let _ = features.string(number);
    }
    let _ = (
        features.command_line(),
        features.cpus(),
        features.sample_time(),
    );
    let _ = (
        features.compression(),
        features.cpu_pmu_caps(),
        features.events(),
    );
    assert!(file.build_ids().count() <= bytes.len() / 8 + 1);

    // Every value is used, so that no field is left undecoded.
    let mut touched = 0u64;
    let mut see = |record: &Record<'_>| {
        let Record::Sample(sample) = record else {
            return;
        };
        touched ^= sample.ip().unwrap_or(0) ^ sample.time().unwrap_or(0);
        if let Ok(Some(chain)) = sample.callchain() {
            touched ^= chain.entries().count() as u64;
        }
        if let Ok(Some((regs, stack))) = sample.user_regs_and_stack() {
            touched ^= regs.iter().map(|(_, value)| value).fold(0, |a, b| a ^ b);
            touched ^= u64::from(stack.bytes.last().copied().unwrap_or(0));
        }
        if let Ok(Some(branches)) = sample.branch_stack() {
            touched ^= branches
                .entries()
                .map(|branch| branch.from)
                .fold(0, |a, b| a ^ b);
        }
        let values = sample.read_values().ok().flatten();
        touched ^= values.map_or(0, |values| values.values().count() as u64);
        let _ = (
            sample.raw_data(),
            sample.intr_regs(),
            sample.aux_data(),
            sample.check(),
        );
    };

    // In both orders, since only one of them holds records back.
    let mut walk = |order| -> Summary {
        file.for_each(order, |event| {
            see(&event.record);
            std::ops::ControlFlow::Continue(())
        })
    };
    let (by_file, by_time) = (walk(Order::File), walk(Order::Time));
    // Whatever the file, the order affects nothing but the order.
    assert_eq!(
        (by_file.events, by_file.skipped),
        (by_time.events, by_time.skipped)
    );
    assert_eq!(by_file.stop, by_time.stop);
    let chunked: u64 = file.chunks(100).flatten().map(|chunk| chunk.records).sum();
    assert_eq!(chunked, file.records().flatten().count() as u64);
    std::hint::black_box(touched);
    by_file.events
}

const SMALL: [&str; 6] = [
    "A-two-samples-one-record.data",
    "C-two-tids.data",
    "G-empty-record.data",
    "I-user-mode-sample.data",
    "J-delivery-order.data",
    "LBR-stitch-grow.data",
];
const REAL: [&str; 3] = ["dwarf.data", "dwarf-zstd.data", "fp-pipe.data"];

#[test]
fn every_byte_flipped() {
    for name in SMALL.into_iter().chain(REAL) {
        let mut bytes = recording(name);
        assert!(read_all(&bytes) > 3, "{name} is of no use here");
        for at in 0..bytes.len() {
            // For large files, one bit of each byte.
            let bits = if SMALL.contains(&name) {
                0..8
            } else {
                at % 8..at % 8 + 1
            };
            for bit in bits {
                bytes[at] ^= 1 << bit;
                read_all(&bytes);
                bytes[at] ^= 1 << bit;
            }
        }
    }
}

#[test]
fn every_length() {
    for name in SMALL.into_iter().chain(REAL) {
        let bytes = recording(name);
        let mut most = 0;
        for end in 0..bytes.len() {
            // A shorter file never has more events.
            let events = read_all(&bytes[..end]);
            assert!(
                events >= most || name == "dwarf-zstd.data",
                "{name} cut at {end}"
            );
            most = most.max(events);
        }
    }
}

#[test]
fn words_replaced_by_extremes() {
    for name in SMALL {
        let bytes = recording(name);
        for at in (0..bytes.len() / 8 * 8).step_by(8) {
            for word in [
                0,
                u64::MAX,
                1 << 63,
                1 << 61,
                u64::MAX / 8,
                bytes.len() as u64,
            ] {
                let mut bad = bytes.clone();
                bad[at..at + 8].copy_from_slice(&word.to_le_bytes());
                read_all(&bad);
            }
        }
    }
}

fn attr() -> Attr {
    Attr {
        sample_type: st::TIME | st::CALLCHAIN,
        ..Attr::default()
    }
}

/// The reason why iterating over `data` stops, as text.
fn stop_of(data: &[u8]) -> String {
    let bytes = file(&[(attr(), &[])], data);
    let parsed = PerfFile::parse(&bytes).unwrap();
    match parsed
        .for_each_ordered(|_| std::ops::ControlFlow::Continue(()))
        .stop
    {
        Stop::Error(error) => error.to_string(),
        other => format!("{other:?}"),
    }
}

#[test]
fn framing_errors_say_where() {
    let good = record(rt::COMM, 0, &le(&[1, 2]));
    let start = 104 + 136 + 16;
    let next = start + good.len();

    // What follows the good record, and how the reading ends.
    let cases: [(&[u8], String); 5] = [
        (&[], "End".into()),
        (
            &le(&[9]),
            "record size 0 is below the 8 bytes of its header".into(),
        ),
        (
            &le(&[9 | 7 << 48]),
            "record size 7 is below the 8 bytes of its header".into(),
        ),
        (
            &le(&[9 | 64 << 48]),
            "record of 64 bytes, but only 8 bytes are left: 56 are missing".into(),
        ),
        (
            &[1, 2, 3],
            "record of 8 bytes, but only 3 bytes are left: 5 are missing".into(),
        ),
    ];

    // A good record comes first, so that the offset in the message is not that of the data.
    for (tail, message) in cases {
        let expected = match message.as_str() {
            "End" => message,
            _ => format!("perf.data: record at offset {next:#x}: {message}"),
        };
        assert_eq!(stop_of(&[&good, tail].concat()), expected);
    }
}

#[test]
fn a_bad_body_is_skipped_and_counted() {
    // Counts that cannot be right, in records of several kinds.
    let data = [
        record(rt::SAMPLE, 2, &le(&[100, 1, 0x10])),
        record(rt::SAMPLE, 2, &le(&[101, u64::MAX / 8 + 2, 0x10])),
        record(rt::SAMPLE, 2, &[]),
        record(rt::CALLCHAIN_DEFERRED, 2, &le(&[1, 1 << 61, 0x10])),
        record(rt::NAMESPACES, 0, &le(&[1, 1 << 60])),
        record(rt::SAMPLE, 2, &le(&[102, 0])),
    ]
    .concat();
    let bytes = file(&[(attr(), &[])], &data);
    let parsed = PerfFile::parse(&bytes).unwrap();
    let mut chains = Vec::new();
    let summary = parsed.for_each_ordered(|event| {
        if let Record::Sample(sample) = event.record {
            chains.push(sample.callchain().map(|chain| chain.unwrap().len()));
        }
        std::ops::ControlFlow::Continue(())
    });
    assert_eq!((summary.skipped, summary.stop), (3, Stop::End));

    // The first one that was skipped is kept as an example.
    let kind = PerfErrorKind::Short { need: 8, have: 0 };
    assert_eq!(summary.first_skipped.unwrap().kind, kind);
    assert_eq!((&chains[0], &chains[2]), (&Ok(1), &Ok(0)));

    // A sample's chain is decoded on demand, and its count is then an error.
    let error = chains[1].unwrap_err();
    assert_eq!(
        error.kind,
        PerfErrorKind::Count {
            count: u64::MAX / 8 + 2,
            room: 1
        }
    );
    assert_eq!(
        error.to_string(),
        "perf.data: sample at offset 0x138: count 2305843009213693953 does not fit: there is room \
         for 1"
    );
}

#[test]
fn other_files_are_refused_by_name() {
    let refused = |bytes: &[u8]| PerfFile::parse(bytes).unwrap_err().to_string();
    let head = "perf.data: file header at offset 0x0: ";
    assert_eq!(
        refused(b""),
        format!("{head}not a perf.data file (no PERFILE2 at its start)")
    );
    assert!(refused(b"2ELIFREP\0\0\0\0\0\0\0\0").contains("big-endian"));
    assert!(refused(b"PERFFILE\0\0\0\0\0\0\0\0").contains("2009"));
    assert!(refused(&[&b"PERFILE2"[..], &le(&[40])].concat()).contains("header size 40"));
    assert!(refused(b"PERFILE2").contains("cut short: needs 16 bytes, has 8"));
    assert!(refused(&pipe(&[], &[])).contains("no event attribute"));
    assert!(refused(&file(&[], &[])).contains("no event attribute"));
}

#[test]
fn ids_outside_the_file_or_listed_many_times_are_refused() {
    let mut bytes = file(&[(attr(), &[1, 2])], &[]);
    let ids = 104 + 16 + 136;
    bytes[ids..ids + 8].copy_from_slice(&(u64::MAX - 7).to_le_bytes());
    let error = PerfFile::parse(&bytes).unwrap_err();
    assert_eq!(
        error.kind,
        PerfErrorKind::SectionOutOfFile {
            size: 16,
            missing: 16,
            file: bytes.len() as u64
        }
    );

    // Many events that share the same IDs: memory would grow with the product.
    let ids: Vec<u64> = (0..2000).collect();
    let mut attrs = vec![(attr(), &ids[..])];
    attrs.extend(std::iter::repeat_n((attr(), &[][..]), 100));
    let mut bytes = file(&attrs, &[]);
    for index in 1..=100 {
        let at = 104 + 16000 + index * 152 + 136;
        bytes[at..at + 16].copy_from_slice(&le(&[104, 16000]));
    }
    let error = PerfFile::parse(&bytes).unwrap_err();
    assert!(
        matches!(error.kind, PerfErrorKind::TooMany { .. }),
        "{error}"
    );
}

#[test]
fn a_recorder_that_was_killed_leaves_what_it_wrote() {
    let mut bytes = file(&[(attr(), &[])], &record(rt::SAMPLE, 2, &le(&[100, 0])));
    bytes[48..56].fill(0);
    let parsed = PerfFile::parse(&bytes).unwrap();
    assert_eq!(parsed.problems()[0].kind, PerfErrorKind::DataSizeZero);
    assert_eq!(parsed.records().count(), 1);
}

fn pack(data: &[u8]) -> Vec<u8> {
    record(rt::COMPRESSED, 0, &zstd::encode_all(data, 3).unwrap())
}

#[test]
fn compressed_data_that_cannot_be_unpacked_ends_with_the_reason() {
    let sample = record(rt::SAMPLE, 2, &le(&[100, 0]));
    assert_eq!(stop_of(&pack(&sample)), "End");
    assert!(
        stop_of(&record(rt::COMPRESSED, 0, b"no zstd at all")).contains("zstd data is corrupt")
    );
    assert!(stop_of(&pack(&pack(&sample))).contains("compressed record inside a compressed"));
    assert!(stop_of(&pack(&sample[..13])).contains("ends inside a record, 13 bytes into it"));
    assert!(stop_of(&pack(&le(&[9]))).contains("record size 0 is below"));
    let cut = record(rt::COMPRESSED2, 0, &le(&[1 << 40]));
    assert!(stop_of(&cut).contains("cut short: needs 1099511627776 bytes"));
    let short = record(rt::COMPRESSED2, 0, &[1]);
    assert!(stop_of(&short).contains("cut short: needs 8 bytes, has 1"));
    assert_eq!(stop_of(&record(rt::COMPRESSED, 0, &[])), "End");
}

#[test]
fn a_bomb_is_cut_off() {
    // 0x40 repeated is a sequence of valid records of 0x4040 bytes.
    let bomb = zstd::encode_all(std::io::repeat(0x40).take(80 << 20), 19).unwrap();
    assert!(bomb.len() < 16 << 10);
    assert!(stop_of(&record(rt::COMPRESSED, 0, &bomb)).contains("more than 67108864 bytes"));
}
