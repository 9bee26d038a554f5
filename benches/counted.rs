//! The program in which instructions are counted: our walks and imports, and the peers', each a
//! given number of times. Linked statically, it executes the same instructions on every machine.
//!
//! `counted write FOLDER` records stacks through the functions of the library in that folder, checks
//! that ours and the peers' addresses are equal, and prints the names of what can be counted.
//! `counted run NAME TIMES FOLDER` does that work so many times. `tests/counting.rs` makes the
//! library and runs the program in the emulated machine.
mod common;
mod ours;

use std::path::Path;

use common::framehop_peer;
use common::perfdata_peer;
use common::snapshot::{RBP, RIP, RSP, Snapshot};
use common::synthetic;
use unwind_sim_perf_data::write::{Body, EventSpec, Id, SampleData, StackCopy, Writer};
use unwind_sim_perf_data::{Mmap, MmapIdentity, flag, misc, sample_type as st};

/// The depth of the stack that is walked.
const FRAMES: usize = 200;
/// The number of stacks in the recording, and the depth of each.
const STACKS: usize = 64;
const STACK_FRAMES: usize = 40;
const LIBRARY: &str = "functions.so";
const RECORDING: &str = "perf.data";
/// `PERF_REG_X86_BP`, `_SP` and `_IP`, in ascending order.
const REGISTERS: [(u32, usize); 3] = [(6, RBP), (7, RSP), (8, RIP)];
const PROT_READ_EXEC: u32 = 5;

/// Fills a vector with addresses.
type Run<'a> = Box<dyn FnMut(&mut Vec<u64>) + 'a>;

/// One thing to count.
struct Workload<'a> {
    name: String,
    run: Run<'a>,
}

fn peer_walks(snapshot: &Snapshot) -> [Workload<'_>; 2] {
    let (regs, stack, images) = (&snapshot.regs, snapshot.stack(), &snapshot.images[..]);
    let unwinder = framehop_peer::unwinder(images);
    let mut cache = framehop_peer::Cache::new();
    [
        Workload {
            name: "framehop warm".to_owned(),
            run: Box::new(move |out| framehop_peer::walk(&unwinder, &mut cache, regs, stack, out)),
        },
        Workload {
            name: "framehop first".to_owned(),
            run: Box::new(move |out| {
                let unwinder = framehop_peer::unwinder(images);
                let mut cache = framehop_peer::Cache::new();
                framehop_peer::walk(&unwinder, &mut cache, regs, stack, out);
            }),
        },
    ]
}

/// All work over a stack and a recording.
fn work<'a>(snapshot: &'a Snapshot, recording: &'a Path) -> Vec<Workload<'a>> {
    let mut all = Vec::from(peer_walks(snapshot));
    let ours = ours::walks(snapshot).into_iter();
    all.extend(ours.map(|(name, run)| Workload { name, run }));
    all.push(Workload {
        name: "linux-perf-data + framehop import".to_owned(),
        run: Box::new(|out| {
            perfdata_peer::replay(recording, &mut |chain| out.extend(chain)).expect("a recording");
        }),
    });
    all.push(Workload {
        name: "ours dwarf import".to_owned(),
        run: Box::new(|out| {
            ours::replay(recording, &mut |chain| out.extend(chain)).expect("a recording");
        }),
    });
    all
}

fn stack(library: &Path, frames: usize, skip: usize) -> Snapshot {
    synthetic::stack("counted", library, frames, skip).expect("a library with .eh_frame")
}

/// A recording of stacks, each through other functions.
fn recording(library: &Path) -> Vec<u8> {
    let event = EventSpec {
        sample_type: st::IP | st::TID | st::TIME | st::REGS_USER | st::STACK_USER,
        // Registers are stored in the order of their bits (`perf_output_sample_regs()`).
        sample_regs_user: REGISTERS.iter().fold(0, |mask, (bit, _)| mask | 1 << bit),
        sample_stack_user: 32 << 10,
        flags: flag::SAMPLE_ID_ALL,
        ..EventSpec::software("cpu-clock", 0)
    };

    // Written here, not by perf, so that it is the same on every machine.
    let mut writer = Writer::new(vec![event]);
    let id = |time| Id {
        pid: 1,
        tid: 1,
        time,
        ..Id::default()
    };

    for number in 0..STACKS {
        let snapshot = stack(library, STACK_FRAMES, number);
        // All stacks are in one image, so one mapping is enough.
        if number == 0 {
            let image = &snapshot.images[0];
            let mapped = image.executable().expect("an executable segment");
            let mmap = Mmap {
                pid: 1,
                tid: 1,
                address: mapped.address,
                length: mapped.length,
                file_offset: mapped.offset,
                identity: MmapIdentity::Path,
                protection: PROT_READ_EXEC,
                // MAP_PRIVATE.
                flags: 2,
                path: library.as_os_str().as_encoded_bytes(),
            };
            let cpumode = misc::CPUMODE_USER;
            writer
                .record(&Body::Mmap { mmap, cpumode }, &id(1))
                .expect("a mapping");
        }

        let sample = SampleData {
            misc: misc::CPUMODE_USER,
            ip: snapshot.regs[RIP],
            user_regs: &REGISTERS.map(|(_, at)| snapshot.regs[at]),
            user_stack: StackCopy {
                bytes: &snapshot.stack,
                size: snapshot.stack.len(),
            },
            ..SampleData::default()
        };

        // Time 1 is the mapping's, which must come first.
        let id = id(2 + number as u64);
        writer.record(&Body::Sample(sample), &id).expect("a sample");
    }

    writer.finish()
}

/// Every work's addresses must be those of the first one of its kind.
fn check(all: &mut [Workload<'_>]) {
    let mut walked: Option<Vec<u64>> = None;
    let mut imported: Option<Vec<u64>> = None;
    for Workload { name, run } in all {
        let expected = if name.ends_with("import") {
            &mut imported
        } else {
            &mut walked
        };
        for _ in 0..2 {
            let mut out = Vec::new();
            run(&mut out);
            let expected = expected.get_or_insert_with(|| out.clone());
            assert!(!out.is_empty() && out == *expected, "{name} differs");
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();

    let with_work = |folder: &Path, each: &mut dyn FnMut(&mut Vec<Workload<'_>>)| {
        let snapshot = stack(&folder.join(LIBRARY), FRAMES, 0);
        each(&mut work(&snapshot, &folder.join(RECORDING)));
    };

    // `write` prepares the files, `run` is what runs under the counter: it does one kind of work, a
    // number of times.
    match arguments[..] {
        ["write", folder] => {
            let folder = Path::new(folder);
            let bytes = recording(&folder.join(LIBRARY));
            std::fs::write(folder.join(RECORDING), bytes).expect("the recording is written");
            with_work(folder, &mut |all| {
                check(all);
                all.iter().for_each(|work| println!("{}", work.name));
            });
        }
        ["run", name, times, folder] => {
            let times: u64 = times.parse().expect("a number");
            with_work(Path::new(folder), &mut |all| {
                let work = all.iter_mut().find(|work| work.name == name);
                let work = work.expect("a name of the list");

                // Allocated once, so that only the work is counted.
                let mut out = Vec::with_capacity(STACKS * FRAMES);
                for _ in 0..times {
                    out.clear();
                    (work.run)(&mut out);
                }
            });
        }
        _ => {
            println!("counted by `cargo test --release --test suite counting` (UNWIND_SIM_SLOW=1)")
        }
    }
}
