//! Files of random runs, read back: every record as it was, in the reader's order and by time, and
//! stitched as the model's own records are.

use super::{EPOCH_NS, perf_data};
use crate::record::Delivered;
use crate::{Body, Branches, Kind, Mutant, Record, Registers, Scenario, Schedule, World, join};
use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use unwind_sim_perf_data::regs::{
    PERF_REG_X86_BP, PERF_REG_X86_CS, PERF_REG_X86_FLAGS, PERF_REG_X86_IP, PERF_REG_X86_SP,
};
use unwind_sim_perf_data::stitch::{Mode, Stitcher, items};
use unwind_sim_perf_data::{Event, Order, PerfFile, Record as Read, Stop, flag, sample_type as st};

const SEEDS: u64 = 60;
const ACTIONS: usize = 600;

fn world(seed: u64, mutant: Option<Mutant>) -> World {
    let schedule = Schedule::random(seed, ACTIONS, mutant);
    let mut world = schedule.world().expect("a seed's events are accepted");
    schedule.run(&mut world);
    world
}

/// A record as read, as the model has it; `None` for what a tool adds.
fn read(event: &Event<'_>, expected: &Record) -> Option<Record> {
    let id = event.id();

    // Of both kinds of chains, as they are in the record.
    let words =
        |chain: unwind_sim_perf_data::callchain::Callchain<'_>| chain.words().collect::<Vec<_>>();

    // Records at time 0 are those that describe the start.
    let body = match event.record {
        Read::FinishedRound => return None,
        _ if id.time() == Some(0) => return None,
        Read::Sample(sample) if matches!(expected.body, Body::Raw { .. }) => Body::Raw {
            data: sample.raw_data().ok()??.to_vec(),
        },
        // The number of a sample is not in the file.
        Read::Sample(sample) => Body::Sample {
            number: match expected.body {
                Body::Sample { number, .. } => number,
                _ => 0,
            },
            period: sample.period()?,
            user_mode: sample.cpumode() == 2,
            ip: sample.ip()?,
            chain: sample.callchain().ok()?.map(words).unwrap_or_default(),
            payload: match sample.raw_data().ok()? {
                // Padding follows the payload.
                Some(raw) => match expected.body {
                    Body::Sample { ref payload, .. } => raw[8..8 + payload.len()].to_vec(),
                    _ => return None,
                },
                None => Vec::new(),
            },
            registers: sample.intr_regs().ok()?.map(|regs| Registers {
                ip: regs.get(PERF_REG_X86_IP).unwrap_or(0),
                sp: regs.get(PERF_REG_X86_SP).unwrap_or(0),
                bp: regs.get(PERF_REG_X86_BP).unwrap_or(0),
                cs: regs.get(PERF_REG_X86_CS).unwrap_or(0),
                flags: regs.get(PERF_REG_X86_FLAGS).unwrap_or(0),
            }),
            user_bytes: sample.attr().sample_stack_user,
            branches: sample.branch_stack().ok()?.map(|branches| Branches {
                hw_index: branches.hw_index.unwrap_or(u64::MAX),
                entries: branches.entries().collect(),
            }),
        },
        Read::CallchainDeferred { cookie, chain } => Body::Deferred {
            // None is written as 0, which in today's form is that of an NMI on the way out.
            cookie: match expected.body {
                Body::Deferred { cookie: None, .. } if cookie == 0 => None,
                _ => Some(cookie),
            },
            period: 0,
            frames: words(chain),
        },
        Read::Lost { id: of, lost } => {
            assert_eq!(Some(of), id.id());
            Body::Lost { lost }
        }
        Read::LostSamples { lost } => Body::LostSamples { lost },
        Read::Comm(comm) if comm.exec => Body::Exec,
        Read::Mmap(map) if map.path == b"[vdso]" => Body::Vdso,
        Read::Fork(task) => Body::Fork { child: task.tid },
        Read::Exit(_) => Body::Exit,
        Read::Throttle(_) => Body::Throttle,
        Read::Unthrottle(_) => Body::Unthrottle,
        ref other => panic!("{other:?} was never written"),
    };

    Some(Record {
        time: id.time()? - EPOCH_NS,
        sequence: expected.sequence,
        cpu: id.cpu()? as u16,
        event: id.id()? as u16 - 1,
        tid: id.tid()?,
        body,
    })
}

/// Holds what is read in an order against the records in that order.
fn compare(bytes: &[u8], order: Order, mut expected: VecDeque<&Record>) {
    let file = PerfFile::parse(bytes).expect("we wrote it");
    assert!(file.problems().is_empty());
    let summary = file.for_each(order, |event| {
        if let Some(next) = expected.front()
            && let Some(found) = read(&event, next)
        {
            assert_eq!(&found, *next);
            expected.pop_front();
        }
        ControlFlow::Continue(())
    });
    assert_eq!(
        (summary.stop, summary.skipped, summary.late),
        (Stop::End, 0, 0)
    );
    assert!(expected.is_empty(), "{} are missing", expected.len());
}

#[test]
fn every_record_is_read_back_as_it_was() {
    let mut count = 0;
    for seed in 0..SEEDS {
        let world = world(seed, None);
        let bytes = perf_data(&world).expect("it can be written");
        let records: BTreeMap<u64, &Record> =
            world.records().iter().map(|r| (r.sequence, r)).collect();
        let delivered = world
            .delivered()
            .iter()
            .filter_map(|delivered| match delivered {
                Delivered::Record(sequence) => Some(records[sequence]),
                Delivered::Cpu(_) => None,
            });
        compare(&bytes, Order::File, delivered.collect());
        count += records.len();
    }
    assert!(count > 1_000, "only {count} records");
}

/// With the file's rounds nothing comes late; several records of one time come as they are read.
#[test]
fn by_time_the_records_come_as_they_were_written() {
    for seed in 0..SEEDS {
        let world = world(seed, None);
        let bytes = perf_data(&world).expect("it can be written");
        let place: BTreeMap<u64, usize> = world
            .delivered()
            .iter()
            .enumerate()
            .filter_map(|(place, delivered)| match delivered {
                Delivered::Record(sequence) => Some((*sequence, place)),
                Delivered::Cpu(_) => None,
            })
            .collect();
        let mut expected: Vec<&Record> = world.records().iter().collect();
        expected.sort_by_key(|record| (record.time, place[&record.sequence]));
        compare(&bytes, Order::Time, expected.into());
    }
}

/// Thread, time and chain of each sample, and how it came by it; sorted, because samples of two
/// CPUs at one time have no order.
type Joined = Vec<(i32, Option<u64>, Vec<u64>, &'static str)>;

fn stitched(bytes: &[u8], world: &World, mode: Mode) -> Joined {
    let file = PerfFile::parse(bytes).expect("we wrote it");
    let mut stitcher = Stitcher::new(mode);
    items(&file, |item| {
        // What programs write is no sample of the model.
        let event = world.events().get(item.event as usize - 1);
        if event.is_none_or(|event| event.kind != Kind::BpfOutput) {
            stitcher.push(item);
        }
        ControlFlow::Continue(())
    });
    stitcher.finish();
    let out = std::iter::from_fn(|| stitcher.pop());
    let time = |time: Option<u64>| time.map(|time| time - EPOCH_NS);
    let mut out: Joined = out
        .map(|s| (s.tid, time(s.time), s.chain, s.how.as_str()))
        .collect();
    out.sort();
    out
}

#[test]
fn a_file_is_stitched_as_the_run_is() {
    let (mut samples, mut bogus) = (0, 0);
    for seed in 0..SEEDS {
        let world = world(seed, None);
        let bytes = perf_data(&world).expect("it can be written");

        // The same result from the run and from its file: nothing is lost on the way.
        for mode in Mode::ALL {
            let run = join(&world, mode).joined.into_iter();
            let mut expected: Joined = run
                .map(|j| {
                    (
                        j.stitched.tid,
                        j.stitched.time,
                        j.stitched.chain,
                        j.stitched.how.as_str(),
                    )
                })
                .collect();

            // The orders may differ where times are equal.
            expected.sort();
            let found = stitched(&bytes, &world, mode);
            for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert_eq!(
                    found,
                    expected,
                    "seed {seed}, {}, sample {at}",
                    mode.as_str()
                );
            }

            assert_eq!(found.len(), expected.len());
            samples += found.len();

            // Some samples must lack their record, or nothing was tested of that.
            bogus += found.iter().filter(|sample| sample.3 == "end").count();
        }
    }

    assert!(samples > 1_000 && bogus > 0, "{samples} samples, {bogus}");
}

/// The flag word is 40 bytes into an attribute (`include/uapi/linux/perf_event.h`, Linux 7.2).
#[test]
fn r001_1_deferral_is_bits_38_and_39() {
    for (words, bits) in [("no-defer", 0), ("", 1 << 38), ("defer-output", 3 << 38)] {
        let text = format!("event e pmu {words}\n");
        let scenario = Scenario::parse(&text).and_then(|s| s.run());
        let bytes = perf_data(&scenario.expect("a scenario")).expect("it can be written");
        let at = |place: usize| {
            let word: [u8; 8] = bytes[place..place + 8].try_into().expect("eight bytes");
            u64::from_le_bytes(word)
        };
        // The attributes' place is the fourth word of the file.
        let flags = at(at(24) as usize + 40);
        assert_eq!(flags & 3 << 38, bits, "{words}");
        assert_eq!(flags >> 40, 0);
    }
}

#[test]
fn attributes_say_what_was_asked_for() {
    let text = "event cycles pmu period 2000 defer-output exclude-user stack-user 65535\n\
                event clock timer period 20000 no-defer inherit exclude-kernel exclude-idle\n\
                stack s 0x401030 0x401020 0x7f0000401010\ntask 1 s\nkthread 2\nswitch 0 1\nsyscall 0\n\
                sample 0 cycles\nleave 0\nfinish 0\n";

    let world = Scenario::parse(text)
        .and_then(|s| s.run())
        .expect("a scenario");
    let bytes = perf_data(&world).expect("it can be written");
    let file = PerfFile::parse(&bytes).expect("we wrote it");

    let found: Vec<_> = file
        .attrs()
        .iter()
        .map(|attr| {
            (
                attr.name.as_deref().unwrap_or_default(),
                attr.kind,
                attr.sample_period,
            )
        })
        .collect();
    assert_eq!(found, [("cycles", 0, 2000), ("clock", 1, 20_000)]);

    let flags = [file.attrs()[0].flags, file.attrs()[1].flags];
    let deferral = flag::DEFER_CALLCHAIN | flag::DEFER_OUTPUT;
    assert_eq!(flags.map(|flags| flags & deferral), [deferral, 0]);

    // Each of the other flags is set in one of the two events.
    let excludes = flag::INHERIT | flag::EXCLUDE_USER | flag::EXCLUDE_KERNEL | flag::EXCLUDE_IDLE;
    assert_eq!(
        flags.map(|flags| flags & excludes),
        [flag::EXCLUDE_USER, excludes & !flag::EXCLUDE_USER]
    );

    // The first event also asks for what tasks do.
    let side = flag::MMAP | flag::MMAP2 | flag::COMM | flag::COMM_EXEC | flag::TASK;
    assert_eq!(flags.map(|flags| flags & side), [side, 0]);
    assert_eq!(file.attrs()[0].sample_type & st::STACK_USER, st::STACK_USER);

    // The copy is cut to what a record holds; user code is mapped, and only where it is.
    let (mut maps, mut comms, mut copies) = (Vec::new(), Vec::new(), Vec::new());
    file.for_each(Order::File, |event| {
        match event.record {
            Read::Mmap(map) => maps.push((map.tid, map.address, map.length)),
            Read::Comm(comm) => comms.push(String::from_utf8_lossy(comm.name).into_owned()),
            Read::Sample(sample) => {
                let copy = sample
                    .user_stack()
                    .expect("it is whole")
                    .expect("it is there");
                copies.push((copy.bytes.len(), event.raw.body.len() + 8));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    });
    assert_eq!(
        maps,
        [
            (0, 0xffff_ffff_8100_0000, 0x100_0000),
            (1, 0x401000, 0x1000),
            (1, 0x7f00_0040_1000, 0x1000)
        ]
    );

    // The tasks of the start have names that say their number.
    assert_eq!(comms, ["task-1", "kthread-2"]);
    assert_eq!(copies, [(0, 0xfff8)]);
}

#[test]
fn tracepoints_and_uprobes_are_what_they_are() {
    let text = "event cycles pmu no-defer config1 0x10\n\
                event kmem:mm_page_alloc tracepoint no-defer regs-intr\n\
                event probe uprobe no-defer\nevent switches software no-defer\n\
                stack f3 0x403000 0x402018\ntask 1 f3\nswitch 0 1\nsyscall 0\n\
                sample 0 kmem:mm_page_alloc\nstep 0 9\nsample 0 switches\nstep 0 9\nleave 0\n\
                finish 0\nuser 0 f3 entry\nuprobe 0\nfinish 0\n";

    let world = Scenario::parse(text)
        .and_then(|s| s.run())
        .expect("a scenario");
    let bytes = perf_data(&world).expect("it can be written");
    let file = PerfFile::parse(&bytes).expect("we wrote it");

    let attrs = file.attrs().iter().map(|attr| {
        let name = attr.name.as_deref().unwrap_or_default();
        (name, attr.kind, attr.config, attr.sample_period)
    });

    // Name, type, config and period: a counter, two tracepoints, a software event.
    let expected = [
        ("cycles", 0, 0, 1_000_000),
        ("kmem:mm_page_alloc", 2, 1001, 1),
        ("probe_model:probe", 2, 1002, 1),
        ("switches", 1, 3, 1),
    ];
    assert_eq!(attrs.collect::<Vec<_>>(), expected);
    assert_eq!(file.attrs()[0].config1, 0x10);

    // Number, flags and preemption count, thread; then the CPU, or where the probe is.
    let mut payloads = Vec::new();
    file.for_each(Order::File, |event| {
        if let Read::Sample(sample) = event.record {
            payloads.extend(sample.raw_data().expect("it is whole").map(<[u8]>::to_vec));
        }
        ControlFlow::Continue(())
    });

    let words = |words: [u32; 5]| words.map(u32::to_le_bytes).concat();
    let tracepoint = words([1001, 1, 0, 0, 0])[..12].to_vec();
    assert_eq!(payloads, [tracepoint, words([1002, 1, 0x40_3000, 0, 0])]);

    // The formats are in the file, for tools that show the fields.
    let formats = file.features().section(1).expect("tracing data");
    let formats = String::from_utf8_lossy(formats);
    for line in ["name: mm_page_alloc\nID: 1001\n", "name: probe\nID: 1002\n"] {
        assert!(formats.contains(line), "{line}");
    }
}
