//! Warm walks of kernel stacks with the kernel's ORC unwinder (`orc:kernel`), addresses only, in ns
//! per frame, compared with warm walks by `orc` of user stacks as deep, with the same entries.
//!
//! The stacks are made: 200 frames, or 8, in functions whose entries differ. Then recorded stacks of
//! `corpus/kernel/`, walked by both unwinders. Both walks must give the same addresses. `--test`
//! only checks. `cargo bench --bench kernel_walk`.
mod common;

use common::report;
use common::timing::{Clock, Measured, duel};
use std::path::Path;
use std::sync::Arc;
use unwind_sim_recordings::model::Sample;
use unwind_sim_recordings::recording::Recording;
use unwind_sim_recordings::trace::Trace;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::Addresses;
use unwind_sim_unwind::derived::Tables;
use unwind_sim_unwind::image::{
    AddressSpace, Bytes, Image, ImageParts, Mapping, Section, SectionKind, Symbol,
};
use unwind_sim_unwind::kernel::{
    Code, FindCache, Kernel, StackInfo, StackType, Task, UnwinderKind, Version, perf,
};
use unwind_sim_unwind::memory::{Memory, MemoryCopy};
use unwind_sim_unwind::orc::{Encoding, Entry, EntryType, Layout, Orc, OrcReg};
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::{Start, Variant};
use unwind_sim_unwind::walk::{Limits, WalkTarget, walk};

const ROUNDS: usize = 41;
/// Our time for a kernel stack relative to that for a user stack, at most.
const GOAL: f64 = 1.0;
const ENCODING: Encoding = Encoding::since_5_12(Layout::V6_4);
/// Distance of the functions, bytes.
const FUNCTION: u64 = 0x40;
/// A return address's offset in its function, bytes.
const INSIDE: u64 = 0x20;
const RECORDING: &str = "6.1-callchains.bin";

/// A stack and the code that it belongs to, in the kernel or in user space.
struct StackSample {
    space: AddressSpace,
    start: Start,
    task: Task,
    base: u64,
    bytes: Vec<u8>,
}

/// An entry of function `number`: frames have different sizes, and a third of them save rbp.
fn entry(number: usize) -> Entry {
    let saves_bp = number.is_multiple_of(3);
    Entry {
        sp_reg: OrcReg::Sp,
        sp_offset: 16 + 8 * (number % 7) as i16,
        bp_reg: if saves_bp {
            OrcReg::PrevSp
        } else {
            OrcReg::Undefined
        },
        bp_offset: if saves_bp { -16 } else { 0 },
        kind: EntryType::Call,
        signal: false,
    }
}

/// The outermost function, whose entry says so.
const ROOT: Entry = Entry {
    kind: EntryType::EndOfStack,
    ..Entry::UNDEFINED
};

/// A stack at `base` through functions at `text`: `frames` of them, each in the next of `functions`
/// functions. The last function is the root.
fn made(text: u64, base: u64, frames: usize, functions: usize) -> StackSample {
    let entries: Vec<Entry> = (0..functions).map(entry).chain([ROOT]).collect();
    let ips = text + 0x10_0000;
    // Each word of `.orc_unwind_ip` is relative to itself (`arch/x86/kernel/unwind_orc.c`,
    // `orc_ip()`).
    let offset = |i: usize| (text + FUNCTION * i as u64).wrapping_sub(ips + 4 * i as u64) as i32;
    let section = |kind, address, bytes| Section {
        kind,
        address,
        data: Bytes::from_vec(bytes),
    };

    let orc = entries.iter().flat_map(|e| e.encode(ENCODING.layout));
    let starts = (0..entries.len()).flat_map(|i| offset(i).to_le_bytes());
    let end = text + FUNCTION * entries.len() as u64;

    let symbol = |name: &str, address| Symbol {
        address,
        size: 0,
        name: name.to_owned(),
    };
    let image = Image::new(ImageParts {
        name: "made".to_owned(),
        text: std::iter::once(text..end).collect(),
        sections: vec![
            section(SectionKind::OrcUnwind, 0, orc.collect()),
            section(SectionKind::OrcUnwindIp, ips, starts.collect()),
        ],
        symbols: vec![symbol("_stext", text), symbol("_etext", end)],
        ..ImageParts::default()
    });

    let mut space = AddressSpace::new();
    space.map(Mapping {
        range: text..end,
        bias: 0,
        image: Some(Arc::new(image)),
        name: "made".to_owned(),
    });

    // The last frame is in the root, whose row ends the walk.
    let ip = |i: usize| {
        let function = if i + 1 == frames {
            functions
        } else {
            i % functions
        };
        text + FUNCTION * function as u64 + INSIDE
    };

    let mut words: Vec<u64> = Vec::new();
    for i in 0..frames - 1 {
        // `sp_offset` includes the return address, which is the last word of the frame.
        let size = entry(i % functions).sp_offset as usize / 8;

        words.extend(std::iter::repeat_n(base + 0x100, size - 1));
        words.push(ip(i + 1));
    }

    // The root has no return address.
    words.push(0);

    let mut regs = Regs::frame(ip(0), base, base + 0x100);
    // `__KERNEL_CS`: bits 0 and 1 are the privilege level, and 0 is the kernel's.
    regs.set(Reg::Cs, 0x10);
    let stack = StackInfo {
        kind: StackType::Task,
        begin: base,
        end: base + 8 * words.len() as u64,
        next_sp: 0,
    };

    StackSample {
        space,
        start: Start::from_regs(regs),
        task: Task {
            stacks: vec![stack],
            ..Task::default()
        },
        base,
        bytes: words.iter().flat_map(|w| w.to_le_bytes()).collect(),
    }
}

/// Walks one stack with the kernel's unwinder.
fn by_kernel<M: Memory>(
    code: &Code,
    (task, memory, start): (&Task, &M, &Start),
    finds: &mut FindCache,
    out: &mut Vec<u64>,
) {
    let kernel = Kernel { code, task, memory };
    let limit = Limits::default().frames_max;
    let ended = perf::addresses(UnwinderKind::Orc, kernel, start, limit, finds, out);
    std::hint::black_box(&ended);
}

/// Walks one stack with the shared walk.
fn by_user<M: Memory>(
    space: &AddressSpace,
    (memory, start): (&M, &Start),
    cache: &mut Cache,
    out: &mut Vec<u64>,
) {
    let orc = Orc::new(Some(ENCODING), Tables::Real);
    let mut sink = Addresses(std::mem::take(out));
    let place = WalkTarget { space, memory };
    let end = walk(&orc, &place, start, &Limits::default(), cache, &mut sink);
    std::hint::black_box(&end);
    *out = sink.0;
}

/// Checks or measures a kernel stack and a user stack of the same shape.
fn pair(work: &str, test: bool, frames: usize, functions: usize) {
    // Addresses as on x86-64: the kernel's text and a vmalloc stack, and a program's.
    let kernel = made(
        0xffff_ffff_8100_0000,
        0xffff_c900_0000_0000,
        frames,
        functions,
    );
    let user = made(0x40_0000, 0x7ffd_0000_0000, frames, functions);

    let code = Code::new(&kernel.space, Version::DEFAULT, Some(ENCODING));
    let mut finds = FindCache::default();
    let kernel_memory = MemoryCopy::new(kernel.base, &kernel.bytes);
    let mut kernel_walk = |out: &mut Vec<u64>| {
        let stack = (&kernel.task, &kernel_memory, &kernel.start);
        by_kernel(&code, stack, &mut finds, out);
    };

    let mut cache = Cache::new();
    let user_memory = MemoryCopy::new(user.base, &user.bytes);
    let mut user_walk = |out: &mut Vec<u64>| {
        by_user(&user.space, (&user_memory, &user.start), &mut cache, out);
    };

    // Both must find the same functions; only where these lie differs.
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    kernel_walk(&mut ours);
    user_walk(&mut theirs);
    // From the start of each text, because the two lie at different addresses.
    let offsets = |list: &[u64], text: u64| list.iter().map(|a| a - text).collect::<Vec<_>>();
    let ours = offsets(&ours, 0xffff_ffff_8100_0000);
    assert_eq!(ours, offsets(&theirs, 0x40_0000), "{work}");
    assert_eq!(ours.len(), frames, "{work}");

    if !test {
        measure(work, &mut kernel_walk, &mut user_walk);
    }
}

type Walk<'a> = &'a mut dyn FnMut(&mut Vec<u64>);

/// Prints the ratio of two walks, in turn.
fn measure(work: &str, kernel: Walk<'_>, user: Walk<'_>) {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    let mut rivals = [
        Measured::new("orc:kernel", || {
            a.clear();
            kernel(&mut a);
            a.len() as u64
        }),
        Measured::new("orc, user stacks", || {
            b.clear();
            user(&mut b);
            b.len() as u64
        }),
    ];
    let figures = duel(Clock::ThreadCpu, ROUNDS, &mut rivals);
    report::row(work, "frame", &figures[0], &figures[1], Some(GOAL));
}

/// The samples of a recording that both unwinders walk to the same addresses.
fn recorded(name: &str, test: bool) -> Result<(), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus/kernel")
        .join(name);
    let trace = Trace::open(&path).map_err(|e| e.to_string())?;
    let recording = Recording::from(trace);

    // Samples are borrowed from the reader, so they are copied before it goes on.
    let mut samples: Vec<Sample<'static>> = Vec::new();
    let mut space = AddressSpace::new();
    let read = recording.views(&mut |view| {
        // The address space of the last sample serves for all.
        space = view.space.clone();
        samples.push(view.sample.clone().into_owned());
        std::ops::ControlFlow::Continue(())
    });
    read.map_err(|e| e.to_string())?;

    // Samples without a kernel stack, or without registers, have nothing to walk.
    let tasks = samples.iter().filter_map(|s| {
        let task = &s.kernel.as_ref()?.task;
        let memory = s.memory();
        let start = s.regs.start(Variant::Hardware, false, &memory).ok()?;
        Some((task, memory, start))
    });
    let mut stacks: Vec<_> = tasks.collect();
    let first = stacks.first().ok_or("no kernel stacks")?.0;

    // All samples of a recording come from one kernel.
    let version = first.version.unwrap_or(Version::DEFAULT);
    let code = Code::new(&space, version, first.encoding);
    let (mut finds, mut cache) = (FindCache::default(), Cache::new());

    // Only where both find the same can their times be compared.
    let all = stacks.len();
    stacks.retain(|(task, memory, start)| {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        by_kernel(&code, (task, memory, start), &mut finds, &mut ours);
        by_user(&space, (memory, start), &mut cache, &mut theirs);
        ours == theirs
    });
    if stacks.is_empty() {
        return Err(format!("none of {all} stacks is the same by both"));
    }
    println!(
        "{name}: {} of {all} stacks are the same by both",
        stacks.len()
    );

    if test {
        return Ok(());
    }

    // All stacks in one call, so that the caches are shared among them, as in a recording.
    let mut kernel_walk = |out: &mut Vec<u64>| {
        for (task, memory, start) in &stacks {
            by_kernel(&code, (task, memory, start), &mut finds, out);
        }
    };
    let mut user_walk = |out: &mut Vec<u64>| {
        for (_, memory, start) in &stacks {
            by_user(&space, (memory, start), &mut cache, out);
        }
    };

    measure(
        &format!("kernel walk, {name}"),
        &mut kernel_walk,
        &mut user_walk,
    );
    Ok(())
}

fn main() {
    let test = std::env::args().any(|a| a == "--test");
    report::note_load();
    report::head();
    pair("kernel walk, 200 functions", test, 200, 199);
    pair("kernel walk, 8 of 200 functions", test, 8, 199);
    pair("kernel walk, recursion", test, 200, 1);
    if let Err(why) = recorded(RECORDING, test) {
        println!("skipped: {RECORDING}: {why}");
    }
}
