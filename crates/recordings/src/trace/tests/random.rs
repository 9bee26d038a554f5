//! Random recordings round-trip, sequentially and at random, with threads, stacks and chains in any
//! order.

use super::support::*;
use crate::model::{
    CallchainRequest, Event, Item, KernelSample, RecordedChain, Region, RegionRole, Sample,
};
use crate::random::Random;
use crate::trace::OutputOptions;
use quickcheck::{QuickCheck, TestResult};
use std::borrow::Cow;
use unwind_sim_unwind::kernel::{
    Cursors, FpState, GraphReturn, GuessState, OrcState, RegsPtr, Rethook, StackInfo, StackType,
    State, Task, UnwinderKind, Uretprobes, UserBoundary, UserSpace, Version,
};
use unwind_sim_unwind::lbr::{Branch, BranchStack};
use unwind_sim_unwind::orc::Encoding;
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::{TrueFrame, TrueKind, Truth};

/// Mostly small steps from `base`, rarely an arbitrary number.
fn near(n: &mut Random, base: u64) -> u64 {
    match n.below_u64(12) {
        0 => n.bits(),
        1 => 0,
        2 => u64::MAX,
        _ => base.wrapping_add(8 * n.below_u64(32)).wrapping_sub(128),
    }
}

fn regs(n: &mut Random) -> Regs {
    let mut regs = Regs::UNKNOWN;
    for reg in Reg::ALL {
        if n.below_u64(4) > 0 {
            let value = near(n, 0x7fff_0000 + reg as u64);
            regs.set(reg, value);
        }
    }
    regs
}

fn region(n: &mut Random) -> Region<'static> {
    let length = n.below(90);
    // Mostly close to each other, so that windows overlap; sometimes anywhere, or up to the last
    // address.
    let address = match n.below_u64(8) {
        0 => n.bits() >> 1,
        1 => u64::MAX - length as u64,
        _ => 0x7000 + n.below_u64(64),
    };

    let seed = n.below_u64(3);
    // They depend on the address, so that overlapping regions mostly agree.
    let mut bytes: Vec<u8> = (0..length as u64)
        .map(|i| (address + i + seed / 2) as u8)
        .collect();

    if let Some(byte) = bytes.get_mut(n.below(90)) {
        *byte = n.bits() as u8;
    }

    let roles = [
        RegionRole::Stack,
        RegionRole::OtherStack,
        RegionRole::Data,
        RegionRole::User,
    ];
    Region {
        role: roles[n.below(roles.len())],
        bounds: near(n, 0x6000)..near(n, 0x9000),
        next_sp: near(n, 0),
        address,
        bytes: Cow::Owned(bytes),
    }
}

fn truth(n: &mut Random) -> Truth {
    let kinds = [
        TrueKind::Top,
        TrueKind::Call,
        TrueKind::Interrupted,
        TrueKind::Trapped,
    ];
    let count = n.below(9);

    let frames = (0..count).map(|i| TrueFrame {
        // The outermost frames are often the same as in the previous sample.
        pc: if i + 3 > count {
            i as u64
        } else {
            near(n, 0x40_0000)
        },
        cfa: if i + 3 > count {
            0x7100
        } else {
            near(n, 0x7080)
        },
        kind: kinds[if i + 3 > count {
            1
        } else {
            n.below(kinds.len())
        }],
        saved: (n.below_u64(3) == 0).then(|| [0; 6].map(|_| near(n, 5))),
    });
    let frames = frames.collect();

    match n.below_u64(3) {
        0 => Truth::Unknown,
        1 => Truth::Known(frames),
        _ => Truth::Complete(frames),
    }
}

fn request(n: &mut Random) -> CallchainRequest {
    CallchainRequest {
        kernel: n.below_u64(2) == 0,
        user: n.below_u64(2) == 0,
        add_mark: n.below_u64(2) == 0,
        crosstask: n.below_u64(2) == 0,
        max_stack: n.bits() as u32,
        cookie: (n.below_u64(2) == 0).then(|| n.bits()),
    }
}

fn random_sample(n: &mut Random) -> Sample<'static> {
    let some = |n: &mut Random| (n.below_u64(3) == 0).then(|| regs(n));
    let chain = |n: &mut Random| RecordedChain {
        source: ["perf", "gdb", ""][n.below(3)].into(),
        ips: (0..n.below_u64(6)).map(|_| near(n, 0x40_0000)).collect(),
        request: (n.below_u64(3) == 0).then(|| request(n)),
    };

    Sample {
        // Few threads, so that most samples have one before them to which they are relative.
        pid: 1 + n.below_u64(2) as u32,
        // The largest number must fit, too.
        tid: if n.below_u64(20) == 0 {
            u32::MAX
        } else {
            n.below_u64(3) as u32
        },
        time: near(n, 1 << 40),
        regs: SampleRegs {
            sampled: regs(n),
            fetch: some(n),
            own: some(n),
        },
        regions: (0..n.below_u64(4)).map(|_| region(n)).collect(),
        truth: truth(n),
        recorded: (0..n.below_u64(3)).map(|_| chain(n)).collect(),
        branches: (0..n.below_u64(3)).map(|_| branches(n)).collect(),
        kernel: (n.below_u64(3) == 0).then(|| Box::new(kernel(n))),
        process_memory: None,
    }
}

fn branches(n: &mut Random) -> BranchStack {
    let count = n.below_u64(6);
    BranchStack {
        depth: n.below_u64(40) as u32,
        hw_index: (n.below_u64(2) == 0).then(|| near(n, 3)),
        // The outermost calls are often the same as in the previous sample.
        entries: (0..count)
            .map(|i| Branch {
                from: if i + 2 > count { i } else { near(n, 0x40_0000) },
                to: if i + 2 > count { i } else { near(n, 0x41_0000) },
            })
            .collect(),
    }
}

fn kernel(n: &mut Random) -> KernelSample {
    let release = ["6.1.0-50-cloud-amd64", "7.1", ""][n.below(3)];
    let stack = |n: &mut Random| StackInfo {
        kind: StackType::ALL[n.below(11)],
        begin: near(n, 0x7000),
        end: near(n, 0x8000),
        next_sp: n.bits(),
    };

    let cursors = |n: &mut Random| Cursors {
        graph_idx: n.below_u64(9) as u32,
        rethook: n.below_u64(9) as u32,
    };
    let pointer = |n: &mut Random| match n.below_u64(3) {
        0 => RegsPtr::None,
        1 => RegsPtr::Start,
        // Never 0 or 1, which stand for none and for the registers of the start.
        _ => RegsPtr::At(near(n, 0x7000) | 2),
    };
    let flag = |n: &mut Random| n.below_u64(2) == 1;

    // The values need not make sense: the format does not look at them.
    let state = |n: &mut Random| match n.below_u64(3) {
        0 => State::Orc(OrcState {
            stack: stack(n),
            stack_mask: n.below_u64(2000),
            cursors: cursors(n),
            error: flag(n),
            signal: flag(n),
            full_regs: flag(n),
            sp: near(n, 0x7000),
            bp: n.bits(),
            ip: near(n, 0x40_0000),
            regs: pointer(n),
            prev_regs: pointer(n),
        }),
        1 => State::Fp(FpState {
            stack: stack(n),
            stack_mask: n.below_u64(2000),
            cursors: cursors(n),
            error: flag(n),
            got_irq: flag(n),
            bp: near(n, 0x7000),
            orig_sp: near(n, 0x7000),
            ip: n.bits(),
            next_bp: n.below_u64(2),
            regs: pointer(n),
        }),
        _ => State::Guess(GuessState {
            stack: stack(n),
            stack_mask: n.below_u64(2000),
            sp: near(n, 0x7000),
        }),
    };

    let pair = |n: &mut Random| (near(n, 0x40_0000), near(n, 0x7000));
    let graph = |n: &mut Random| {
        let (ret, retp) = pair(n);
        GraphReturn { ret, retp }
    };
    let rethook = |n: &mut Random| {
        let (ret_addr, frame) = pair(n);
        Rethook { ret_addr, frame }
    };

    KernelSample {
        release: release.into(),
        // A number past the end makes it unknown.
        unwinder: UnwinderKind::ALL.get(n.below(6)).copied(),
        task: Task {
            // Not written: a reader takes it from the release.
            version: Version::from_name(release),
            encoding: Encoding::ALL.get(n.below(9)).copied(),
            is_current: flag(n),
            on_other_cpu: flag(n),
            thread_sp: n.bits(),
            top_padding: n.below_u64(2) * 16,
            stacks: (0..n.below_u64(4)).map(|_| stack(n)).collect(),
            graph: (0..n.below_u64(3)).map(|_| graph(n)).collect(),
            rethooks: (0..n.below_u64(3)).map(|_| rethook(n)).collect(),
        },
        states: (0..n.below_u64(9)).map(|_| state(n)).collect(),
        boundary: flag(n).then(|| UserBoundary {
            ip: near(n, 0x40_0000),
            sp: n.bits(),
            pushed_at: flag(n).then(|| near(n, 0x7000)),
        }),
        user: flag(n).then(|| UserSpace {
            regs: flag(n).then(|| Regs::frame(near(n, 0x40_0000), near(n, 0x7000), n.bits())),
            pid: n.bits() as u32,
            uprobe: flag(n).then(|| (n.bits() as u32).to_le_bytes()),
            // A detail, which is in another block than the rest.
            uretprobes: flag(n).then(|| Uretprobes {
                trampoline: n.bits(),
                originals: (0..n.below_u64(4)).map(|_| near(n, 0x40_0000)).collect(),
            }),
        }),
    }
}

fn event(n: &mut Random) -> Event {
    let (pid, tid) = (n.bits() as u32, n.below_u64(9) as u32);
    let range = near(n, 0x1000)..near(n, 0x2000);

    match n.below_u64(6) {
        0 => Event::Map {
            pid,
            range,
            bias: near(n, 0),
            image: None,
            name: "name".into(),
        },
        1 => Event::Unmap { pid, range },
        2 => Event::Exec { pid },
        3 => Event::Fork {
            pid,
            tid,
            // With `tid` 0 both are one process, as for a new thread.
            parent_pid: pid.wrapping_add(tid),
        },
        4 => Event::Exit { pid, tid },
        _ => Event::Comm {
            pid,
            tid,
            // Two bytes: lengths of texts are in bytes.
            name: "ü".into(),
        },
    }
}

fn items(seed: u64) -> Vec<Item<'static>> {
    let n = &mut Random::new(seed);
    (0..n.below_u64(60))
        .map(|_| match n.below_u64(3) {
            0 => Item::Event(event(n)),
            _ => Item::Sample(random_sample(n)),
        })
        .collect()
}

#[test]
fn random_recordings_come_back() {
    fn holds(seed: u64) -> TestResult {
        let items = items(seed);
        for options in [OutputOptions::default(), uncompressed()] {
            let trace = open(&write(&items, &[], options)).unwrap();
            if read(&trace) != items {
                return TestResult::error(format!("seed {seed}: another recording"));
            }
            let samples = items.iter().filter(|i| matches!(i, Item::Sample(_)));
            for (number, sample) in samples.enumerate().step_by(5) {
                if Item::Sample(trace.sample(number as u64).unwrap()) != *sample {
                    return TestResult::error(format!("seed {seed}: sample {number}"));
                }
            }
        }
        TestResult::passed()
    }
    QuickCheck::new()
        .tests(150)
        .quickcheck(holds as fn(u64) -> TestResult);
}

/// Flushed and cut anywhere: what is read is a prefix of what was written.
#[test]
fn random_recordings_cut_short_yield_a_prefix() {
    fn holds(seed: u64, cut: usize) -> bool {
        let items = items(seed);
        let mut writer = crate::trace::TraceWriter::new(Vec::new(), &Default::default()).unwrap();
        for (i, item) in items.iter().enumerate() {
            writer.item(item).unwrap();
            if i % 7 == 3 {
                writer.flush().unwrap();
            }
        }
        let bytes = writer.finish().unwrap();
        let length = 16 + cut % (bytes.len() - 16);
        let read = read(&open(&bytes[..length]).unwrap());
        read == items[..read.len()]
    }
    QuickCheck::new()
        .tests(150)
        .quickcheck(holds as fn(u64, usize) -> bool);
}

/// Random bytes in a samples block: reading ends, with an error or a sample.
#[test]
fn random_payloads_never_panic() {
    fn holds(seed: u64, length: u8) -> bool {
        use crate::trace::sample::decode::Decoder;
        use crate::trace::varint::Cursor;
        let n = &mut Random::new(seed);
        let small = |n: &mut Random| match n.below_u64(3) {
            0 => n.bits() as u8,
            _ => n.below_u64(6) as u8,
        };
        let records: Vec<u8> = (0..length).map(|_| small(n)).collect();
        let literals: Vec<u8> = (0..length).map(|_| small(n)).collect();
        let mut decoder = Decoder::default();
        let (mut r, mut l) = (Cursor::new(&records, 0), Cursor::new(&literals, 0));
        let mut steps = 0;
        while decoder.step(&mut r, &mut l).is_ok() {
            steps += 1;
            decoder.sample();
        }
        steps <= usize::from(length)
    }
    QuickCheck::new()
        .tests(5000)
        .quickcheck(holds as fn(u64, u8) -> bool);
}
