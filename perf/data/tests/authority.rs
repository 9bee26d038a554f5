//! The reader compared with perf: the same records, in the same order, word for word.
//!
//! The expectations are the output of `perf script` for the recordings, written by
//! `corpus/perfdata/expect-from-perf.py`.

use std::fmt::Write as _;

use crate::common::{corpus, each, recording};
use unwind_sim_perf_data::callchain::{Context, Entry};
use unwind_sim_perf_data::regs;
use unwind_sim_perf_data::{Event, Order, PerfFile, Record, Sample, Stop, flag};

/// Compares what the reader finds in `NAME.data` with `NAME.expected.txt`.
fn check(name: &str, say: fn(&mut String, &Event<'_>)) {
    let bytes = recording(&format!("{name}.data"));
    let expected = std::fs::read_to_string(corpus(&format!("{name}.expected.txt"))).unwrap();
    let mut found = String::new();
    let summary = each(&bytes, Order::Time, |event| say(&mut found, event));
    assert_eq!(
        (summary.stop, summary.skipped, summary.late),
        (Stop::End, 0, 0),
        "{name}"
    );
    assert!(expected.contains("sample "), "{name}: nothing is expected");
    for (line, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "{name}.expected.txt, line {}", line + 1);
    }
    assert_eq!(found.lines().count(), expected.lines().count(), "{name}");
}

/// A record in the format of `perf script -D`.
fn dump(out: &mut String, event: &Event<'_>) {
    match event.record {
        Record::Mmap(m) => {
            let path = String::from_utf8_lossy(m.path);
            let (pid, tid, address) = (m.pid, m.tid, m.address);
            let (length, offset) = (m.length, m.file_offset);
            writeln!(
                out,
                "mmap {pid} {tid} {address:#x} {length:#x} {offset:#x} {path}"
            )
            .unwrap();
        }
        Record::Sample(sample) => dump_sample(out, &sample).unwrap(),
        _ => {}
    }
}

fn dump_sample(out: &mut String, sample: &Sample<'_>) -> std::fmt::Result {
    sample.check().unwrap();
    let (pid, tid) = (sample.pid().unwrap(), sample.tid().unwrap());
    let (ip, time) = (sample.ip().unwrap(), sample.time().unwrap());
    // Without a recorded period perf uses the event's, which is 1 for a tracepoint.
    let period = sample.period().unwrap_or(sample.attr().sample_period);
    writeln!(out, "sample {pid} {tid} {ip:#x} {time} {period}")?;
    for (index, word) in sample
        .callchain()
        .unwrap()
        .unwrap_or_default()
        .words()
        .enumerate()
    {
        writeln!(out, "chain {index} {word:#x}")?;
    }

    // Only recordings with stack copies go on from here.
    let Some((user_regs, stack)) = sample.user_regs_and_stack().unwrap() else {
        return Ok(());
    };
    assert_eq!(sample.user_regs().unwrap(), Some(user_regs));
    assert_eq!(sample.user_stack().unwrap(), Some(stack));
    for (register, value) in user_regs.iter() {
        writeln!(out, "reg {} {value:#x}", regs::name(register).unwrap())?;
    }
    writeln!(out, "stack {}", stack.bytes.len())
}

/// A record in the format of `perf script --no-merge-callchains`.
fn text(out: &mut String, event: &Event<'_>) {
    let (tid, time_us) = (
        event.id().tid().unwrap_or(0),
        event.time().unwrap_or(0) / 1000,
    );
    let chain = match event.record {
        Record::Sample(sample) => {
            write!(out, "sample {tid} {time_us}:").unwrap();
            sample.callchain().unwrap().unwrap()
        }
        Record::CallchainDeferred { cookie, chain } => {
            write!(out, "deferred {tid} {time_us} {cookie:#x}:").unwrap();
            chain
        }
        _ => return,
    };
    for entry in chain.entries() {
        if let Entry::Frame { address, .. } = entry {
            write!(out, " {address:#x}").unwrap();
        }
    }
    out.push('\n');
}

#[test]
fn dwarf_recording() {
    check("dwarf", dump);
    check("norow", dump);
}

#[test]
fn frame_pointer_recording() {
    check("minidebug", dump);
}

#[test]
fn compressed_recording() {
    check("dwarf-zstd", dump);
}

#[test]
fn recording_of_two_events_through_a_pipe() {
    check("fp-pipe", dump);
    check("tp-pipe", dump);
}

#[test]
fn handmade_recordings() {
    let names = [
        "A-two-samples-one-record",
        "C-two-tids",
        "G-empty-record",
        "I-user-mode-sample",
        "J-delivery-order",
    ];
    for name in names {
        check(name, dump);
    }
}

#[test]
fn deferred_callchains_of_tracepoints() {
    check("poll-syscalls-defer", text);
}

#[test]
fn deferred_callchains_of_four_threads_and_two_events() {
    check("threads4-switch-defer", text);
}

#[test]
fn deferral_bits_and_cookies_are_found() {
    let bytes = recording("threads4-switch-defer.data");
    let mut samples = Vec::new();
    let mut records = std::collections::BTreeMap::new();

    each(&bytes, Order::Time, |event| match event.record {
        Record::Sample(sample) => {
            let chain = sample.callchain().unwrap().unwrap();
            let cookie = chain
                .deferred_cookie()
                .expect("every user part is deferred");
            assert_ne!(sample.attr().flags & flag::DEFER_CALLCHAIN, 0);
            assert_eq!(chain.frames_of(Context::User).count(), 0);
            samples.push((event.id().tid().unwrap(), cookie, event.time().unwrap()));
        }
        Record::CallchainDeferred { cookie, .. } => {
            records.insert((event.id().tid().unwrap(), cookie), event.time().unwrap());
        }
        _ => {}
    });

    assert_eq!((samples.len(), records.len()), (150, 114));
    let never = samples
        .iter()
        .filter(|s| !records.contains_key(&(s.0, s.1)))
        .count();
    let late = samples
        .iter()
        .filter(|s| records.get(&(s.0, s.1)).is_some_and(|&t| t < s.2));

    // Never: threads that ended. Late: sampled between the record and the return to user space,
    // with the same cookie. This is due to the kernel, not the reader: perf shows the same cookies.
    assert_eq!((never, late.count()), (2, 1));
}

/// The sample's address and the addresses of its branches, as perf builds chains from LBR.
fn branches(out: &mut String, event: &Event<'_>) {
    let Record::Sample(sample) = event.record else {
        return;
    };
    let (tid, time_us) = (sample.tid().unwrap(), sample.time().unwrap() / 1000);
    let stack = sample.branch_stack().unwrap().unwrap();
    assert!(stack.hw_index.is_some());
    assert_eq!(stack.counters().len(), 0);
    write!(out, "sample {tid} {time_us}: {:#x}", sample.ip().unwrap()).unwrap();
    for branch in stack.entries() {
        write!(out, " {:#x}", branch.from).unwrap();
    }
    out.push('\n');
}

#[test]
fn branch_records() {
    check("LBR-stitch-grow", branches);
}

#[test]
fn features_of_a_recording() {
    use unwind_sim_perf_data::feature;
    let bytes = recording("dwarf-zstd.data");
    let file = PerfFile::parse(&bytes).unwrap();
    assert_eq!(file.problems(), []);
    let features = file.features();
    assert_eq!(
        features.string(feature::HOSTNAME).unwrap(),
        Some(&b"recorder"[..])
    );
    assert_eq!(
        features.string(feature::ARCH).unwrap(),
        Some(&b"x86_64"[..])
    );
    assert_eq!(features.cpus().unwrap(), Some((2, 2)));

    // What was recorded is the last word of the command.
    let command = features.command_line().unwrap().unwrap();
    assert_eq!(command.last(), Some(&&b"/usr/local/bin/spin"[..]));
    let compression = features.compression().unwrap().unwrap();
    assert_eq!(
        (compression.kind, compression.level, compression.mmap_len),
        (1, 1, 528_384)
    );
    assert_eq!(file.attrs()[0].name.as_deref(), Some("cpu-clock:u"));

    let bytes = recording("dwarf.data");
    let file = PerfFile::parse(&bytes).unwrap();
    // The recorded times of the first and last sample are those of the samples.
    let mut times = Vec::new();
    each(&bytes, Order::Time, |event| {
        if let Record::Sample(sample) = event.record {
            times.push(sample.time().unwrap());
        }
    });
    let noted = file.features().sample_time().unwrap().unwrap();
    assert_eq!(noted, (times[0], *times.last().unwrap()));

    // Build IDs of 20 bytes, of files and not of the kernel.
    let paths: Vec<_> = file.build_ids().map(|id| id.unwrap()).collect();
    assert_eq!(paths[0].path, b"/usr/local/bin/spin");
    assert!(paths.iter().all(|id| id.id.len() == 20 && !id.kernel));

    let bytes = recording("fp-pipe.data");
    let file = PerfFile::parse(&bytes).unwrap();

    // In a pipe, names come in records of their own.
    let names: Vec<_> = file
        .attrs()
        .iter()
        .map(|attr| attr.name.as_deref().unwrap())
        .collect();
    assert_eq!(names, ["cpu-clock", "context-switches"]);
}
