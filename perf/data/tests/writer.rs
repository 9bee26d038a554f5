//! The writer compared with our own reader, on random records, and with perf.

use crate::common::each;
use quickcheck::{Arbitrary, Gen, quickcheck};
use std::process::Command;
use unwind_sim_perf_data::write::{
    Body, EventSpec, Id, Machine, SampleData, StackCopy, Tracepoint, Writer,
};
use unwind_sim_perf_data::{
    BranchEntry, Comm, Mmap, MmapIdentity, Order, PerfFile, Record, Stop, Task, Throttle,
    branch_sample_type, flag, misc, sample_type as st,
};

/// The variable parts of a sample, owned.
#[derive(Clone, Debug)]
struct Parts {
    event: EventSpec,
    chain: Vec<u64>,
    raw: Vec<u8>,
    branches: Vec<BranchEntry>,
    regs: Vec<u64>,
    stack: Vec<u8>,
    words: Vec<u64>,
}

impl Arbitrary for Parts {
    fn arbitrary(g: &mut Gen) -> Self {
        let known = ((1 << 25) - 1) & !(st::READ | st::AUX);

        // The same registers for both sets.
        let mask = u64::arbitrary(g) & 0x00ff_0fff;

        // IP is always there, so that no sample is empty.
        let event = EventSpec {
            sample_type: u64::arbitrary(g) & known | st::IP,
            flags: u64::arbitrary(g) & flag::SAMPLE_ID_ALL,
            branch_sample_type: u64::arbitrary(g)
                & (branch_sample_type::HW_INDEX | branch_sample_type::COUNTERS),
            sample_regs_user: mask,
            sample_regs_intr: mask,
            ids: vec![77],
            ..EventSpec::software("cpu-clock", 0)
        };

        // Short lists, the empty one among them.
        let few = |g: &mut Gen| {
            (0..usize::arbitrary(g) % 20)
                .map(|_| u64::arbitrary(g))
                .collect()
        };
        let branch = |from| BranchEntry {
            from,
            to: !from,
            flags: from >> 5,
        };
        let chain: Vec<u64> = few(g);
        let froms: Vec<u64> = few(g);
        Parts {
            event,
            chain,
            raw: Vec::arbitrary(g),
            branches: froms.into_iter().map(branch).collect(),
            regs: (0..mask.count_ones()).map(|_| u64::arbitrary(g)).collect(),
            stack: Vec::arbitrary(g),
            words: (0..16).map(|_| u64::arbitrary(g)).collect(),
        }
    }
}

quickcheck! {
    fn a_sample_comes_back_as_it_was(parts: Parts) -> bool {
        let w = &parts.words;
        let sample = SampleData {
            misc: misc::CPUMODE_USER,
            ip: w[0],
            address: w[1],
            period: w[2],
            callchain: &parts.chain,
            raw: &parts.raw,
            branch_hw_index: w[3],
            branches: &parts.branches,
            user_regs: &parts.regs,
            user_stack: StackCopy { bytes: &parts.stack, size: parts.stack.len() + 16 },
            intr_regs: &parts.regs,
            weight: w[4],
            data_source: w[5],
            transaction: w[6],
            physical_address: w[7],
            cgroup: w[8],
            data_page_size: w[9],
            code_page_size: w[10],
        };
        let id = Id {
            event: 0,
            id: 77,
            stream_id: w[11],
            pid: w[12] as i32,
            tid: w[13] as i32,
            time: w[14],
            cpu: w[15] as u32,
        };

        // Reading is the test: what was written has to come back field by field.
        let mut writer = Writer::new(vec![parts.event.clone()]);
        writer.record(&Body::Sample(sample), &id).unwrap();
        let bytes = writer.finish();
        let file = PerfFile::parse(&bytes).unwrap();
        assert!(file.problems().is_empty());
        let raw = file.records().next().unwrap().unwrap();

        // All fields must fit exactly into the record.
        let s = file.sample(&raw).unwrap().unwrap();
        s.check().unwrap();

        // A field is found exactly if its bit is set.
        let has = |bit| parts.event.sample_type & bit != 0;
        let word = |bit: u64, found: Option<u64>, wanted: u64| {
            assert_eq!(found, has(bit).then_some(wanted), "field {bit:#x}");
        };
        word(st::IP, s.ip(), w[0]);
        word(st::ADDR, s.address(), w[1]);
        word(st::PERIOD, s.period(), w[2]);
        word(st::WEIGHT | st::WEIGHT_STRUCT, s.weight().unwrap(), w[4]);
        word(st::DATA_SRC, s.data_source().unwrap(), w[5]);
        word(st::TRANSACTION, s.transaction().unwrap(), w[6]);
        word(st::PHYS_ADDR, s.physical_address().unwrap(), w[7]);
        word(st::CGROUP, s.cgroup().unwrap(), w[8]);
        word(st::DATA_PAGE_SIZE, s.data_page_size().unwrap(), w[9]);
        word(st::CODE_PAGE_SIZE, s.code_page_size().unwrap(), w[10]);
        word(st::STREAM_ID, s.stream_id(), w[11]);
        word(st::TIME, s.time(), w[14]);
        word(st::CPU, s.cpu().map(u64::from), u64::from(w[15] as u32));
        assert_eq!(s.tid(), has(st::TID).then_some(w[13] as i32));

        // Fields of variable size come back whole, except for padding.
        if let Some(chain) = s.callchain().unwrap() {
            assert_eq!(chain.words().collect::<Vec<_>>(), parts.chain);
        }
        if let Some(found) = s.raw_data().unwrap() {
            assert!(found.starts_with(&parts.raw) && found.len() < parts.raw.len() + 8);
        }
        if let Some(found) = s.branch_stack().unwrap() {
            assert_eq!(found.entries().collect::<Vec<_>>(), parts.branches);
        }
        for found in [s.user_regs().unwrap(), s.intr_regs().unwrap()].into_iter().flatten() {
            assert_eq!(found.iter().map(|(_, value)| value).collect::<Vec<_>>(), parts.regs);
        }
        if let Some(found) = s.user_stack().unwrap() {
            assert_eq!(found.bytes, parts.stack);
        }
        raw.body.len().is_multiple_of(8)
    }
}

/// A recording with one record of each kind; perf before 6.19 does not know deferred callchains.
fn one_of_each(with_deferred: bool) -> Vec<u8> {
    let fields =
        st::IP | st::TID | st::TIME | st::CPU | st::PERIOD | st::CALLCHAIN | st::IDENTIFIER;
    // The first event defers its user frames and takes the records of them.
    let mut clock = EventSpec {
        sample_type: fields,
        ids: vec![11],
        ..EventSpec::software("cpu-clock", 0)
    };
    if with_deferred {
        clock.flags |= flag::DEFER_CALLCHAIN | flag::DEFER_OUTPUT;
    }
    let faults = EventSpec {
        sample_type: fields,
        ids: vec![12],
        ..EventSpec::software("page-faults", 2)
    };
    // The second event has the same fields, so that only the ID tells them apart.
    let mut writer = Writer::new(vec![clock, faults]);
    writer.machine(Machine {
        cpus: 4,
        pmu_caps: vec![("branches".into(), "32".into())],
        ..Machine::default()
    });
    let mut id = Id {
        id: 11,
        pid: 100,
        tid: 100,
        ..Id::default()
    };

    // A thread of the process that maps and executes.
    let task = Task {
        pid: 100,
        ppid: 100,
        tid: 101,
        ptid: 100,
        time: 2000,
    };
    let throttle = Throttle {
        time: 4000,
        id: 11,
        stream_id: 11,
    };

    // By build ID, so that no file is needed to know the object.
    let mmap = Mmap {
        pid: 100,
        tid: 100,
        address: 0x400000,
        length: 0x2000,
        file_offset: 0,
        identity: MmapIdentity::BuildId(&[1; 20]),
        protection: 5,
        flags: 2,
        path: b"/none/app",
    };
    let comm = Comm {
        pid: 100,
        tid: 100,
        exec: true,
        name: b"an app",
    };
    let chain = [
        -128i64 as u64,
        0xffff_ffff_8100_0000,
        -512i64 as u64,
        0x400123,
    ];

    // Kernel frames, the marker, and a cookie: the user part comes in a record of its own.
    let deferred = [
        -128i64 as u64,
        0xffff_ffff_8100_0000,
        -640i64 as u64,
        0x3_0000_0001,
    ];
    let sample = SampleData {
        misc: misc::CPUMODE_KERNEL,
        ip: chain[1],
        period: 250_000,
        callchain: &chain,
        ..SampleData::default()
    };

    // One of each kind, in an order in which they may happen.
    let bodies = [
        Body::Comm(comm),
        Body::Mmap {
            mmap,
            cpumode: misc::CPUMODE_USER,
        },
        Body::Fork(task),
        Body::Sample(sample),
        Body::Sample(SampleData {
            callchain: &deferred,
            ..sample
        }),
        Body::CallchainDeferred {
            cookie: 0x3_0000_0001,
            frames: &[0x400456, 0x400789],
        },
        Body::FinishedRound,
        Body::Lost { id: 11, lost: 3 },
        Body::LostSamples { lost: 2 },
        Body::Throttle(throttle),
        Body::Unthrottle(throttle),
        Body::Switch {
            out: true,
            preempted: true,
        },
        Body::SwitchCpuWide {
            out: false,
            preempted: false,
            other_pid: 1,
            other_tid: 2,
        },
        Body::Exit(task),
    ];

    // Times ascend, so that the order of the file is also that of time.
    for body in &bodies {
        id.time += 1000;

        // The time still advances, so that the other records keep theirs.
        if matches!(body, Body::CallchainDeferred { .. }) && !with_deferred {
            continue;
        }
        writer.record(body, &id).unwrap();
    }
    let second = Id {
        event: 1,
        id: 12,
        ..id
    };
    writer.record(&Body::Sample(sample), &second).unwrap();
    writer.finish()
}

#[test]
fn every_record_is_read_back() {
    let bytes = one_of_each(true);
    let mut seen = String::new();
    let summary = each(&bytes, Order::Time, |event| {
        seen.push(match event.record {
            Record::Comm(c) if c.exec && c.name == b"an app" => 'c',
            Record::Mmap(m) if m.identity == MmapIdentity::BuildId(&[1; 20]) => 'm',
            Record::Fork(t) if t.tid == 101 => 'f',
            Record::Sample(s) if s.period() == Some(250_000) => 's',
            Record::CallchainDeferred {
                cookie: 0x3_0000_0001,
                chain,
            } => {
                assert_eq!(chain.words().collect::<Vec<_>>(), [0x400456, 0x400789]);
                'd'
            }

            // The writer ends rounds by itself, so their number is not compared.
            Record::FinishedRound => 'r',
            Record::Lost { id: 11, lost: 3 } => 'l',
            Record::LostSamples { lost: 2 } => 'L',
            Record::Throttle(t) if t.time == 4000 => 't',
            Record::Unthrottle(_) => 'u',
            Record::Switch {
                out: true,
                preempted: true,
            } => 'w',
            Record::SwitchCpuWide {
                out: false,
                other_tid: 2,
                ..
            } => 'W',
            Record::Exit(_) => 'x',
            _ => '?',
        });
    });
    assert_eq!((summary.stop, summary.skipped), (Stop::End, 0));

    // Rounds are of the tool: they may be written at any place.
    seen.retain(|c| c != 'r');
    assert_eq!(seen, "cmfssdlLtuwWxs");

    // What the features say of the whole recording.
    let file = PerfFile::parse(&bytes).unwrap();
    assert_eq!(file.features().cpus().unwrap(), Some((4, 4)));
    assert_eq!(file.features().sample_time().unwrap(), Some((4000, 14000)));
}

#[test]
fn a_record_that_is_too_large_or_of_no_event_is_refused_and_leaves_nothing() {
    let mut writer = Writer::new(vec![EventSpec::software("cpu-clock", 0)]);
    let frames = vec![1; 9000];
    let body = Body::CallchainDeferred {
        cookie: 1,
        frames: &frames,
    };
    assert!(writer.record(&body, &Id::default()).is_err());
    let nobody = Id {
        event: 1,
        ..Id::default()
    };
    assert!(writer.record(&Body::FinishedRound, &nobody).is_err());
    assert_eq!(writer.data_len(), 0);
}

#[test]
fn perf_reads_what_is_written() {
    let path = std::env::temp_dir().join(format!("unwind-sim-writer-{}.data", std::process::id()));
    std::fs::write(&path, one_of_each(false)).unwrap();
    let script = Command::new("perf")
        .args(["script", "-F", "comm,tid,time,event,ip", "-i"])
        .arg(&path)
        .output();
    // Two commands, which read different parts of the file.
    let report = Command::new("perf")
        .args(["report", "--stdio", "-i"])
        .arg(&path)
        .output();
    std::fs::remove_file(&path).unwrap();

    // Without perf, neither can be run.
    let (Ok(script), Ok(report)) = (script, report) else {
        return crate::skip::skip("perf_reads_what_is_written", "perf is not installed");
    };
    let text = String::from_utf8_lossy(&script.stdout);
    assert!(
        script.status.success(),
        "{}",
        String::from_utf8_lossy(&script.stderr)
    );
    assert!(
        text.contains("an app") && text.contains("cpu-clock"),
        "{text}"
    );
    assert!(
        text.contains("ffffffff81000000") && text.contains("page-faults"),
        "{text}"
    );
    assert!(
        report.status.success(),
        "{}",
        String::from_utf8_lossy(&report.stderr)
    );

    // perf warns about what it misses or does not know, and goes on.
    let warnings = String::from_utf8_lossy(&script.stderr).to_lowercase();
    assert!(
        !warnings.contains("nrcpus") && !warnings.contains("unsupported"),
        "{warnings}"
    );
}

#[test]
fn a_tracepoint_is_written_with_its_format() {
    let tracepoint = Tracepoint {
        system: "kmem".to_owned(),
        name: "mm_page_free".to_owned(),
        id: 513,
        fields: "\tfield:u32 order;\toffset:8;\tsize:4;\tsigned:0;\n".to_owned(),
        print: "\"order=%u\", REC->order".to_owned(),
    };

    // The format says where the fields are in a sample's raw data.
    let event = EventSpec {
        sample_type: st::TIME | st::RAW,
        config1: 7,
        ..EventSpec::tracepoint(&tracepoint)
    };
    let mut writer = Writer::new(vec![event]);
    writer.tracepoints(vec![tracepoint.clone()]);

    // The common fields come first, then those of the event.
    let payload = [&tracepoint.common(-2)[..], &[3, 0, 0, 0]].concat();
    let sample = SampleData {
        raw: &payload,
        ..SampleData::default()
    };
    let written = writer.record(&Body::Sample(sample), &Id::default());
    written.expect("it can be written");
    let bytes = writer.finish();
    let file = PerfFile::parse(&bytes).expect("we wrote it");

    // The event has the name of its tracepoint, in its system.
    let attr = &file.attrs()[0];
    let name = attr.name.as_deref();
    assert_eq!(
        (name, attr.kind, attr.config, attr.config1),
        (Some("kmem:mm_page_free"), 2, 513, 7)
    );

    // Number, flags, preemption count, thread, and then the field.
    let mut found = Vec::new();
    each(&bytes, Order::File, |event| {
        if let Record::Sample(sample) = event.record {
            found.extend_from_slice(sample.raw_data().expect("it is whole").unwrap_or_default());
        }
    });
    assert_eq!(found, [1, 2, 0, 0, 0xfe, 0xff, 0xff, 0xff, 3, 0, 0, 0]);

    // The section begins with its magic and version.
    let section = file
        .features()
        .section(unwind_sim_perf_data::feature::TRACING_DATA);
    let section = section.expect("the formats");
    assert!(section.starts_with(b"\x17\x08\x44tracing0.6\0"));
    let text = String::from_utf8_lossy(section);
    assert!(
        text.contains("kmem\0\u{1}\0\0\0"),
        "one event of its system"
    );
    for line in [
        "name: mm_page_free\nID: 513\n",
        "print fmt: \"order=%u\", REC->order\n",
    ] {
        assert!(text.contains(line), "{line}");
    }
}
